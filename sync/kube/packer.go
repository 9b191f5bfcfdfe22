package kube

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Packing keeps an object in the hundred bytes by which it differs from others
// of its kind, and loses nothing. Objects that one program writes have the same
// members; the tree of their names is a shape, which is kept once. What is left
// are the values at its leaves:
//
//	length of the key, key, number of the shape, values in the order of the shape
//
// The namespace and the name stand in the key alone. UIDs, timestamps and
// resource versions are kept as the numbers that they are, and a text that
// occurs again, such as the repository in the labels and in the spec, as a
// reference. An object whose shape cannot be kept is packed as JSON.

const (
	// mostShapes bounds the shapes of a packer, and mostShape the length of
	// one: names of members may come from people, as those of labels do.
	mostShapes = 512
	mostShape  = 4 << 10
)

// packer packs the objects of one resource. It is safe for concurrent use.
type packer struct {
	mu     sync.Mutex        // guards known and the growth of shapes
	known  map[string]*shape // by their text
	shapes atomic.Pointer[[]*shape]
}

func newPacker() *packer {
	p := &packer{known: map[string]*shape{}}
	p.shapes.Store(&[]*shape{nil}) // 0 = JSON
	return p
}

// shape is the tree of the member names of an object.
type shape struct {
	number  uint64
	root    *node
	places  map[string]place // of what is neither object nor list, by joined path
	numbers []place          // the same by number of the path
}

// place is where a shape keeps the value of a member.
type place struct {
	kind byte   // of the node; 0 = there is no such member
	leaf int    // which value it is
	text string // of a constant
}

// node is a place in a shape.
type node struct {
	kind  byte
	names []string // of the members of an object
	nodes []*node  // of an object or a list
	text  string   // of a constant
}

// Kinds of nodes, as they stand in the text of a shape.
const (
	nodeObject    = '{' // members, each nodeMember and a name, and the end
	nodeMember    = ','
	nodeList      = '[' // nodes and the end
	nodeEnd       = '}'
	nodeLeaf      = 'v'
	nodeConstant  = '='
	nodeNamespace = 's'
	nodeName      = 'n'
)

// pack makes the packed form of an object.
func (p *packer) pack(u *unstructured.Unstructured) string {
	full := objectKey(u.GetNamespace(), u.GetName())
	w := writer{key: full, text: make([]byte, 0, 512), values: make([]byte, 0, 256)}
	var number uint64
	if w.object(u.Object, 0) {
		number = p.shapeOf(w.text)
	}
	out := make([]byte, 0, len(full)+6+len(w.values))
	out = append(binary.AppendUvarint(out, uint64(len(full))), full...)
	out = binary.AppendUvarint(out, number)
	if number == 0 {
		data, err := json.Marshal(u.Object)
		if err != nil {
			panic("api: internal error: an object that was decoded cannot be encoded: " + err.Error())
		}
		out = append(out, data...)
	} else {
		out = append(out, w.values...)
	}
	return string(out)
}

// keyIn returns the key of a packed object, which is a part of it.
func keyIn(packed string) string {
	r := reader{data: packed}
	return r.take(int(r.uvarint()))
}

// shapeOf returns the number of a shape, 0 when there are too many.
func (p *packer) shapeOf(text []byte) uint64 {
	if len(text) > mostShape {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.known[string(text)]; s != nil {
		return s.number
	}
	all := *p.shapes.Load()
	if len(all) > mostShapes {
		return 0
	}
	s := &shape{number: uint64(len(all)), places: map[string]place{}}
	r := shapeReader{text: string(text), shape: s}
	s.root = r.read(nil)
	for _, joined := range knownPaths() {
		s.numbers = append(s.numbers, s.places[joined])
	}
	p.known[r.text] = s
	grown := append(slices.Clone(all), s)
	p.shapes.Store(&grown)
	return s.number
}

// open splits a packed object.
func (p *packer) open(packed string) (s *shape, key string, r reader) {
	r = reader{data: packed}
	key = r.take(int(r.uvarint()))
	return (*p.shapes.Load())[r.uvarint()], key, r
}

// unpack makes an object again.
func (p *packer) unpack(packed string) *unstructured.Unstructured {
	s, key, r := p.open(packed)
	if s == nil {
		return &unstructured.Unstructured{Object: decodePacked(packed[r.at:])}
	}
	object, _ := s.root.make(key, &r).(map[string]any)
	return &unstructured.Unstructured{Object: object}
}

// find reads one value of a packed object.
func (p *packer) find(packed string, path Path) scalar {
	s, key, r := p.open(packed)
	if s == nil {
		return memberOf(decodePacked(packed[r.at:]), path)
	}
	var at place
	if path.number < len(s.numbers) {
		at = s.numbers[path.number]
	} else {
		at = s.places[path.joined]
	}
	switch at.kind {
	case nodeLeaf:
		return r.nth(at.leaf)
	case nodeConstant:
		return scalar{tag: tagText, text: at.text}
	case nodeNamespace:
		namespace, _ := splitKey(key)
		return scalar{tag: tagText, text: namespace}
	case nodeName:
		_, name := splitKey(key)
		return scalar{tag: tagText, text: name}
	}
	return scalar{}
}

func decodePacked(text string) map[string]any {
	var object map[string]any
	if err := utiljson.Unmarshal([]byte(text), &object); err != nil {
		panic("api: internal error: a packed object cannot be read: " + err.Error())
	}
	return object
}

// writer takes an object apart into the text of its shape and its values.
type writer struct {
	key    string
	text   []byte
	values []byte
	texts  []string // values that are texts so far, "" for others
}

// object writes the members of an object; depth 1 is metadata and its like.
// false means that it holds something that no decoder makes.
func (w *writer) object(fields map[string]any, depth int) bool {
	w.text = append(w.text, nodeObject)
	names := slices.AppendSeq(make([]string, 0, len(fields)), maps.Keys(fields))
	slices.Sort(names)
	for _, name := range names {
		if strings.Contains(name, pathBreak) {
			return false
		}
		w.text = append(append(append(w.text, nodeMember), name...), 0)
		text, isText := fields[name].(string)
		namespace, rest := splitKey(w.key)
		switch {
		case isText && depth == 0 && (name == "kind" || name == "apiVersion") && !strings.Contains(text, pathBreak):
			w.text = append(append(append(w.text, nodeConstant), text...), 0)
		case isText && depth == 1 && name == "namespace" && text == namespace && namespace != "":
			w.text = append(w.text, nodeNamespace)
		case isText && depth == 1 && name == "name" && text == rest:
			w.text = append(w.text, nodeName)
		default:
			below := 2
			if depth == 0 && name == "metadata" {
				below = 1
			}
			if !w.value(fields[name], below) {
				return false
			}
		}
	}
	w.text = append(w.text, nodeEnd)
	return true
}

func (w *writer) value(v any, depth int) bool {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return false
		}
		return w.object(v, depth)
	case []any:
		if v == nil {
			return false
		}
		w.text = append(w.text, nodeList)
		for _, e := range v {
			if !w.value(e, 2) {
				return false
			}
		}
		w.text = append(w.text, nodeEnd)
		return true
	}
	w.text = append(w.text, nodeLeaf)
	text := ""
	switch v := v.(type) {
	case nil:
		w.values = append(w.values, tagNull)
	case bool:
		if v {
			w.values = append(w.values, tagTrue)
		} else {
			w.values = append(w.values, tagFalse)
		}
	case int64:
		w.values = binary.AppendVarint(append(w.values, tagInt), v)
	case float64:
		w.values = binary.BigEndian.AppendUint64(append(w.values, tagFloat), math.Float64bits(v))
	case string:
		text = v
		w.values = w.appendText(v)
	default:
		return false
	}
	w.texts = append(w.texts, text)
	return true
}

// shapeReader makes a shape from its text.
type shapeReader struct {
	text   string
	at     int
	shape  *shape
	leaves int
	listed bool // inside of a list, where no path leads
}

func (r *shapeReader) read(path []string) *node {
	n := &node{kind: r.text[r.at]}
	r.at++
	switch n.kind {
	case nodeObject:
		for r.text[r.at] == nodeMember {
			r.at++
			name := r.upToBreak()
			n.names = append(n.names, name)
			n.nodes = append(n.nodes, r.read(append(path, name)))
		}
		r.at++
		return n
	case nodeList:
		outside := r.listed
		r.listed = true
		for r.text[r.at] != nodeEnd {
			n.nodes = append(n.nodes, r.read(nil))
		}
		r.listed = outside
		r.at++
		return n
	case nodeConstant:
		n.text = r.upToBreak()
	}
	if !r.listed {
		r.shape.places[strings.Join(path, pathBreak)] = place{kind: n.kind, leaf: r.leaves, text: n.text}
	}
	if n.kind == nodeLeaf {
		r.leaves++
	}
	return n
}

func (r *shapeReader) upToBreak() string {
	text, _, _ := strings.Cut(r.text[r.at:], pathBreak)
	r.at += len(text) + 1
	return text
}

// make builds the value at a node from the values that follow.
func (n *node) make(key string, r *reader) any {
	switch n.kind {
	case nodeObject:
		fields := make(map[string]any, len(n.nodes))
		for i, name := range n.names {
			fields[name] = n.nodes[i].make(key, r)
		}
		return fields
	case nodeList:
		list := make([]any, len(n.nodes))
		for i := range n.nodes {
			list[i] = n.nodes[i].make(key, r)
		}
		return list
	case nodeConstant:
		return n.text
	case nodeNamespace:
		namespace, _ := splitKey(key)
		return namespace
	case nodeName:
		_, name := splitKey(key)
		return name
	}
	v := r.next()
	return v.plain()
}
