package snapshot

import "time"

// DiagnosticsReport describes local storage and the health of outgoing connections.
// It is expensive, so it is built on request.
type DiagnosticsReport struct {
	At      time.Time `json:"at"`
	Store   Store     `json:"store"`
	Mirrors Mirrors   `json:"mirrors"`
	Watches []Watch   `json:"watches"`
	Tokens  []Tokens  `json:"tokens,omitempty"` // only providers in use
}

// Store describes the state file and its disk.
type Store struct {
	Path         string    `json:"path"`
	Bytes        int64     `json:"bytes"`
	FreeBytes    int64     `json:"freeBytes"` // inside the file
	History      int       `json:"history"`
	HistoryBytes int64     `json:"historyBytes"`
	Oldest       time.Time `json:"oldest,omitzero"` // of the history
	Claims       int       `json:"claims"`
	Resting      int       `json:"resting"`
	Objects      int       `json:"objects"`
	Secrets      int       `json:"secrets"`
	DiskFree     int64     `json:"diskFree"` // -1 = unknown
	DiskSize     int64     `json:"diskSize"`
}

// Mirrors describes the Git mirrors on this host.
type Mirrors struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"` // on disk, Git LFS objects included
}

// Watch is the watch of one kind of object.
type Watch struct {
	Kind    string `json:"kind"`
	Synced  bool   `json:"synced"`
	Objects int    `json:"objects"`
	Error   string `json:"error,omitempty"` // of the last request; "" when it succeeded
}

// Tokens is the token cache of one identity provider.
type Tokens struct {
	Provider string        `json:"provider"`
	Held     int           `json:"held"`
	Oldest   time.Duration `json:"oldest"`
	Hits     uint64        `json:"hits"`
	Minted   uint64        `json:"minted"`
	Failed   uint64        `json:"failed"`
	Refused  uint64        `json:"refused"`
}
