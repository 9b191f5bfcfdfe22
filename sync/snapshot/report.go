package snapshot

import "time"

// DiagnosticsReport is how the house of an agent is kept: what it holds on this host, and how
// the ways out of it do. It costs more than a picture, so it is made when it is
// asked for.
type DiagnosticsReport struct {
	At      time.Time `json:"at"`
	Store   Store     `json:"store"`
	Mirrors Mirrors   `json:"mirrors"`
	Watches []Watch   `json:"watches"`
	Tokens  []Tokens  `json:"tokens,omitempty"` // those that were asked for anything
}

// Store is the state file and the disk that it is on.
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
	DiskFree     int64     `json:"diskFree"` // -1 = the system does not tell
	DiskSize     int64     `json:"diskSize"`
}

// Mirrors are the copies of Git repositories on this host.
type Mirrors struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"` // on disk, with what Git LFS keeps
}

// Watch is one kind of object that the agent follows.
type Watch struct {
	Kind    string `json:"kind"`
	Synced  bool   `json:"synced"`
	Objects int    `json:"objects"`
	Error   string `json:"error,omitempty"` // of the last request, while none has succeeded since
}

// Tokens are the tokens of one provider of identities.
type Tokens struct {
	Provider string        `json:"provider"`
	Held     int           `json:"held"`
	Oldest   time.Duration `json:"oldest"`
	Hits     uint64        `json:"hits"`
	Minted   uint64        `json:"minted"`
	Failed   uint64        `json:"failed"`
	Refused  uint64        `json:"refused"`
}
