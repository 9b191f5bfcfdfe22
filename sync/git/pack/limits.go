package pack

import "cmp"

// Limits bound what one remote may make this process receive, hold and walk. Zero fields take the defaults.
type Limits struct {
	PackBytes     int64 // of one fetch, on the wire
	RefsBytes     int64 // of the advertised refs, on the wire
	ObjectBytes   int64 // of any one object, inflated
	InflatedBytes int64 // of all objects of one fetch together
	Objects       int   // in one fetch
	TreeDepth     int   // directories below the root
	PathBytes     int   // of a whole path
	TreeEntries   int   // files and directories of one tree, all levels
	LargeObject   int64 // of any one file in Git LFS
	LargeBytes    int64 // of all that one pull takes from Git LFS
}

// DefaultLimits suit a small host: the largest repository that was measured
// (20,000 dashboards, 522 MB of JSON) is a 54 MB pack.
var DefaultLimits = Limits{
	PackBytes:     512 << 20,
	RefsBytes:     32 << 20,
	ObjectBytes:   32 << 20,
	InflatedBytes: 2 << 30,
	Objects:       1_000_000,
	TreeDepth:     32,
	PathBytes:     1024,
	TreeEntries:   500_000,
	LargeObject:   256 << 20,
	LargeBytes:    1 << 30,
}

// Or fills the zero fields of l from d.
func (l Limits) Or(d Limits) Limits {
	return Limits{
		PackBytes:     cmp.Or(l.PackBytes, d.PackBytes),
		RefsBytes:     cmp.Or(l.RefsBytes, d.RefsBytes),
		ObjectBytes:   cmp.Or(l.ObjectBytes, d.ObjectBytes),
		InflatedBytes: cmp.Or(l.InflatedBytes, d.InflatedBytes),
		Objects:       cmp.Or(l.Objects, d.Objects),
		TreeDepth:     cmp.Or(l.TreeDepth, d.TreeDepth),
		PathBytes:     cmp.Or(l.PathBytes, d.PathBytes),
		TreeEntries:   cmp.Or(l.TreeEntries, d.TreeEntries),
		LargeObject:   cmp.Or(l.LargeObject, d.LargeObject),
		LargeBytes:    cmp.Or(l.LargeBytes, d.LargeBytes),
	}
}
