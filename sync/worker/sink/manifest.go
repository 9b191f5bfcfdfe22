package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"limpet/sync/api/repopath"
	"limpet/sync/fileid"
)

// The manifest is in a hidden directory: Grafana reads every *.json file as a dashboard, even a
// hidden one, but skips hidden directories.
const (
	manifestDir     = ".limpet"
	manifestPath    = manifestDir + "/manifest.json"
	newManifest     = manifestPath + ".new"
	basePath        = manifestDir + "/base.json"
	manifestVersion = 2
	basedVersion    = 3
	// basedFrom is the size of a list, in bytes, that a commit of few files does not write again: about
	// 2,000 files.
	basedFrom = 256 << 10
	// maxManifest is the maximum size of a manifest in bytes: about 400,000 files.
	maxManifest = 128 << 20
)

// manifest records the owner of a directory and the files that limpet has written.
//
// On the disk it is JSON with a line for each file, which is read and written without reflection. A
// change of some files reads and writes their lines alone and copies the rest. Of a large directory it
// has only the files that are others than in an earlier manifest, which is beside it: a commit of one
// file writes no megabytes.
type manifest struct {
	header
	list    string            // the lines of the files, until load has read them
	places  map[string][2]int // of files that were looked up, in the list
	changed map[string]entry  // those that are others than in the list; a zero one is removed
	files   map[string]entry  // by path, after load
	noUID   bool              // it is one of an earlier version, which says nothing of dashboards
}

type header struct {
	Version    int    `json:"version"`
	Repository string `json:"repository"` // namespace/name
	Commit     string `json:"commit"`
	Source     string `json:"source,omitempty"` // what the files depend on beside the commit; "" = unknown
	Hidden     int    `json:"hidden,omitempty"` // see Plan
	Count      int    `json:"count"`            // of files
	// Based reports that the list is that of basePath, and that the lines here are the changed ones.
	Based bool `json:"based,omitempty"`
}

// entry is a file of a manifest.
type entry struct {
	hash string // File.Hash
	size int64  // File.Size; -1 = unknown
	exec bool
	uid  string // File.UID
	// at is what the disk said of the file when it was known to have that content; a zero member is
	// unknown.
	at stamp
}

func (e entry) file(name string) File {
	return File{Path: name, Hash: e.hash, Size: e.size, Exec: e.exec, UID: e.uid}
}

// rows stands between the header and the files of a manifest, between between two files, and ends
// after them.
const (
	rows    = `"entries": [` + "\n"
	between = ",\n"
	ends    = "\n]}\n"
)

// get returns the entry of a file.
func (m *manifest) get(name string) (e entry, has bool) {
	if m.list == "" {
		e, has = m.files[name]
		return e, has
	}
	if e, has = m.changed[name]; has {
		return e, e.hash != ""
	}
	start, end := m.find(name)
	if start == end {
		return e, false
	}
	_, e, err := parseRow(m.list[start:end])
	return e, err == nil
}

// set sets the entry of a file; a zero one removes it.
func (m *manifest) set(name string, e entry) {
	if m.list == "" {
		m.files[name] = e
		return
	}
	_, had := m.get(name)
	switch has := e.hash != ""; {
	case has && !had:
		m.Count++
	case had && !has:
		m.Count--
	}
	m.changed[name] = e
}

// find returns where the line of a file is in the list; an empty range is nowhere.
func (m *manifest) find(name string) (start, end int) {
	at, known := m.places[name]
	if !known {
		at[0], at[1] = m.search(name)
		m.places[name] = at
	}
	return at[0], at[1]
}

func (m *manifest) search(name string) (start, end int) {
	text := string(appendText([]byte{'['}, repopath.Quote(name))) + ","
	if !strings.HasPrefix(m.list, text) {
		if start = strings.Index(m.list, "\n"+text) + 1; start == 0 {
			return 0, 0
		}
	}
	length := strings.Index(m.list[start:], between)
	if length < 0 {
		return start, len(m.list)
	}
	return start, start + length
}

// load reads the list.
func (m *manifest) load() error {
	if m.list == "" {
		return nil
	}
	m.files = make(map[string]entry, m.Count)
	if err := eachRow(m.list, func(name string, e entry) { m.files[name] = e }); err != nil {
		return fmt.Errorf("read manifest %s: %w", manifestPath, err)
	}
	for name, e := range m.changed {
		if m.files[name] = e; e.hash == "" {
			delete(m.files, name)
		}
	}
	m.list, m.places, m.changed = "", nil, nil
	m.rebase(0)
	return nil
}

// mostBased is the maximum number of files that a manifest has of its own beside a base.
const mostBased = 500

// rebase decides whether the manifest is written as the changes to the one that it was read from,
// whose list has at least from bytes.
func (m *manifest) rebase(from int) {
	m.Based = from > 0 && len(m.list) >= from && len(m.changed) <= mostBased
	m.Version = manifestVersion
	if m.Based {
		m.Version = basedVersion
	}
}

// encode returns a reader of the text.
func (m *manifest) encode() io.Reader {
	text := []io.Reader{strings.NewReader(frame(m.header))}
	switch {
	case m.Based:
		text = append(text, rowsOf(m.changed))
	case m.list == "":
		text = append(text, rowsOf(m.files))
	default:
		for _, part := range m.lines() {
			text = append(text, strings.NewReader(part))
		}
	}
	return io.MultiReader(append(text, strings.NewReader(ends))...)
}

// frame returns what stands before the rows.
func frame(head any) string {
	text, err := json.MarshalIndent(head, "", " ")
	if err != nil {
		panic("sink: internal error: " + err.Error()) // text and numbers
	}
	return string(bytes.TrimSuffix(text, []byte("\n}"))) + ",\n " + rows
}

// unframe reads what stands before the rows, and returns these. framed is false for a text of an
// earlier version.
func unframe(text string, head any) (list string, framed bool, err error) {
	before, list, framed := strings.Cut(text, rows)
	if !framed {
		return "", false, nil
	}
	before = strings.TrimSuffix(strings.TrimRight(before, " \n"), ",") + "}"
	if err := json.Unmarshal([]byte(before), head); err != nil {
		return "", true, err
	}
	list, whole := strings.CutSuffix(list, ends)
	if !whole {
		return "", true, io.ErrUnexpectedEOF
	}
	return list, true, nil
}

// rowReader reads the lines of files. They are many megabytes, so they are made while they are read.
type rowReader struct {
	files map[string]entry
	names []string // whose lines are not made yet
	text  []byte   // made, and not read yet
	row   []byte
}

func rowsOf(files map[string]entry) *rowReader {
	return &rowReader{files: files, names: slices.Sorted(maps.Keys(files))}
}

func (r *rowReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(r.text) == 0 {
			if len(r.names) == 0 {
				return n, io.EOF
			}
			name := r.names[0]
			r.names = r.names[1:]
			if r.row = appendRow(r.row[:0], name, r.files[name]); len(r.names) > 0 {
				r.row = append(r.row, between...)
			}
			r.text = r.row
		}
		read := copy(p[n:], r.text)
		r.text = r.text[read:]
		n += read
	}
	return n, nil
}

// lines returns the parts of the list with what has changed.
func (m *manifest) lines() (parts []string) {
	type line struct {
		start, end int
		row        string
	}
	var there, added []line
	for _, name := range slices.Sorted(maps.Keys(m.changed)) {
		var l line
		if e := m.changed[name]; e.hash != "" {
			l.row = string(appendRow(nil, name, e)) + between
		}
		if l.start, l.end = m.find(name); l.start < l.end {
			there = append(there, l)
		} else {
			added = append(added, l)
		}
	}
	slices.SortFunc(there, func(a, b line) int { return a.start - b.start })
	at := 0
	for _, l := range there {
		parts = append(parts, m.list[at:l.start], l.row)
		at = min(l.end+len(between), len(m.list))
	}
	if at < len(m.list) {
		parts = append(parts, m.list[at:], between)
	}
	for _, l := range added {
		parts = append(parts, l.row)
	}
	for i, part := range slices.Backward(parts) {
		if part != "" {
			parts[i] = strings.TrimSuffix(part, between)
			break
		}
	}
	return parts
}

func appendRow(out []byte, name string, e entry) []byte {
	out = appendText(append(out, '['), repopath.Quote(name))
	out = appendText(append(out, ','), e.hash)
	out = strconv.AppendInt(append(out, ','), e.size, 10)
	out = strconv.AppendBool(append(out, ','), e.exec)
	out = appendText(append(out, ','), e.uid)
	out = strconv.AppendInt(append(out, ','), e.at.MTime, 10)
	out = strconv.AppendInt(append(out, ','), e.at.CTime, 10)
	out = strconv.AppendUint(append(out, ','), e.at.Inode, 10)
	return append(out, ']')
}

// appendText appends text as JSON.
func appendText(out []byte, text string) []byte {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' }) {
		quoted, _ := json.Marshal(text) // text always marshals
		return append(out, quoted...)
	}
	return append(append(append(out, '"'), text...), '"')
}

// readManifest returns nil if there is none.
func readManifest(dir *os.Root) (*manifest, error) {
	text, err := readText(dir, manifestPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var m *manifest
	if err == nil {
		m, err = parseManifest(text)
	}
	if err == nil && m.Based {
		err = m.readBase(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", manifestPath, err)
	}
	return m, nil
}

func readText(dir *os.Root, name string) (string, error) {
	f, info, err := fileid.Open(dir.OpenFile, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var text strings.Builder
	text.Grow(int(min(info.Size(), maxManifest)))
	_, err = io.Copy(&text, io.LimitReader(f, maxManifest))
	return text.String(), err
}

func parseManifest(text string) (*manifest, error) {
	m := &manifest{places: map[string][2]int{}, files: map[string]entry{}}
	var framed bool
	var err error
	m.list, framed, err = unframe(text, &m.header)
	version := manifestVersion
	if m.Based {
		version = basedVersion
	}
	switch {
	case !framed:
		return parseEarlier([]byte(text))
	case err != nil:
		return nil, err
	case m.Version != version:
		return nil, unknownVersion(m.Version)
	}
	return m, nil
}

// readBase reads the manifest that this one has the changes to.
func (m *manifest) readBase(dir *os.Root) error {
	m.changed = map[string]entry{}
	if err := eachRow(m.list, func(name string, e entry) { m.changed[name] = e }); err != nil {
		return err
	}
	text, err := readText(dir, basePath)
	if err != nil {
		return err
	}
	base, err := parseManifest(text)
	if err == nil && (base.list == "" || base.Based) {
		err = errors.New("it is no list of files")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", basePath, err)
	}
	m.list = base.list
	return nil
}

// eachRow calls use for each line of a list.
func eachRow(list string, use func(name string, e entry)) error {
	if list == "" {
		return nil
	}
	n := 0
	for row := range strings.SplitSeq(list, between) {
		name, e, err := parseRow(row)
		if n++; err != nil {
			return fmt.Errorf("file %d: %w", n, err)
		}
		use(name, e)
	}
	return nil
}

// parseRow reads a file of a manifest. One whose names need no escapes is cut at its commas.
func parseRow(row string) (name string, e entry, err error) {
	quoted := strings.Split(row, `"`)
	if strings.Contains(row, `\`) || len(quoted) != 7 {
		values := [8]any{&name, &e.hash, &e.size, &e.exec, &e.uid, &e.at.MTime, &e.at.CTime, &e.at.Inode}
		err = json.Unmarshal([]byte(row), &values)
		return repopath.Unquote(name), e, err
	}
	name, e.hash, e.uid = quoted[1], quoted[3], quoted[5]
	size, exec, _ := strings.Cut(strings.Trim(quoted[4], ","), ",")
	e.exec = exec == "true"
	times := strings.SplitN(strings.Trim(quoted[6], ",]"), ",", 3)
	if len(times) != 3 {
		return name, e, io.ErrUnexpectedEOF
	}
	var errs [4]error
	e.size, errs[0] = strconv.ParseInt(size, 10, 64)
	e.at.MTime, errs[1] = strconv.ParseInt(times[0], 10, 64)
	e.at.CTime, errs[2] = strconv.ParseInt(times[1], 10, 64)
	e.at.Inode, errs[3] = strconv.ParseUint(times[2], 10, 64)
	return name, e, errors.Join(errs[:]...)
}

// parseEarlier reads a manifest of version 1. Some of those have not all of the maps.
func parseEarlier(data []byte) (*manifest, error) {
	var old struct {
		header
		Files map[string]string `json:"files"`
		Sizes map[string]int64  `json:"sizes"`
		Times map[string]int64  `json:"times"`
		Exec  map[string]bool   `json:"exec"`
		UIDs  map[string]string `json:"uids"`
	}
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, err
	}
	if old.Version >= manifestVersion {
		return nil, unknownVersion(old.Version)
	}
	m := &manifest{header: old.header, files: make(map[string]entry, len(old.Files)), noUID: old.UIDs == nil}
	for name, hash := range old.Files {
		e := entry{hash: hash, size: -1, exec: old.Exec[name], uid: old.UIDs[name], at: stamp{MTime: old.Times[name]}}
		if size, known := old.Sizes[name]; known && old.Exec != nil {
			e.size = size // else the file counts as another one
		}
		m.files[repopath.Unquote(name)] = e
	}
	return m, nil
}

func unknownVersion(version int) error {
	return fmt.Errorf("it has version %d, or was changed by hand; this limpet knows %d", version, basedVersion)
}
