package main

// anySize are the repositories of goals that hold for each.
var anySize = []string{"small", "medium", "large"}

const (
	mib = 1 << 20
	mb  = 1_000_000
)

// races have the goals G1 to G20, and those of a first sync and of an increment.
var races = []race{
	{
		once: true, limpet: looks(1), against: lsRemote,
		goals: []goal{
			{"G1", "a look at a source that has not changed, from the request to its status, over git ls-remote", wall, 0.5, 0.25, 0},
		},
	},
	{
		once: true, limpet: looks(10_000), against: limpetToo(looks(1)),
		goals: []goal{
			{"G2", "a look at 10,000 refs over one at 3, processor", cpu, 1.2, 1.05, 0},
			{"G2-bytes", "what it receives, over 1 kB", sent, 1, 0.1, 1000},
		},
	},
	{
		sizes: []string{"small", "medium"}, limpet: firstSync(intoDirectory), against: clone("clone"),
		goals: []goal{
			{"G3", "first sync into a directory, from the start of the process, over git clone --depth 1 + read + parse", wall, 0.75, 0.5, 0},
			{"G3-cpu", "the same, processor", cpu, 1, 0, 0},
			{"G8", "its peak over 45 MiB", rss, 1, 0, 45 * mib},
		},
	},
	{
		sizes: []string{"large"}, limpet: firstSync(intoDirectory), against: clone("clone"),
		goals: []goal{
			{"G3", "first sync into a directory, from the start of the process, over git clone --depth 1 + read + parse", wall, 0.75, 0.5, 0},
			{"G3-cpu", "the same, processor", cpu, 1, 0, 0},
			{"G8", "its peak over 120 MB", rss, 1, 75. / 120, 120 * mb},
		},
	},
	{
		sizes: anySize, limpet: firstSync(intoAPI), against: clone("clone"),
		goals: []goal{
			{"first-api", "first sync into the embedded API over git clone --depth 1 + read + parse", wall, 1.6, 0, 0},
			{"first-api-rss", "its peak over 120 MiB", rss, 1, 0, 120 * mib},
		},
	},
	{
		sizes: anySize, limpet: firstSync(intoDirectory), against: clone("gogit5"),
		goals: []goal{{"first-gogit5", "first sync into a directory over go-git v5: clone bare, depth 1, read and parse", wall, 0, 0, 0}},
	},
	{
		sizes: anySize, limpet: firstSync(intoDirectory), against: clone("gogit6"),
		goals: []goal{{"first-gogit6", "the same over go-git v6", wall, 0, 0, 0}},
	},
	{goals: []goal{{"G4", "first sync over Flux's gogit clone + Archive", wall, 0.5, 0.3, 0}}},
	{
		sizes: anySize, limpet: increment(intoAPI, thisSize, 1), against: gitFetch,
		goals: []goal{
			{"G5", "one commit of one file into the embedded API, from the job to its status, over git fetch + diff-tree + cat-file", wall, 0.8, 0.5, 0},
			{"G6-bytes", "what it receives, over git's", sent, 1.5, 0, 0},
		},
	},
	{
		sizes: anySize, limpet: increment(intoDirectory, thisSize, 2), against: gitFetch,
		goals: []goal{{"step-directory", "the same into a directory", wall, 1.5, 0, 0}},
	},
	{
		sizes: []string{"large"}, limpet: increment(intoAPI, thisSize, 1), against: limpetToo(increment(intoAPI, mediumSize, 1)),
		goals: []goal{{"G6", "one commit of one file into the embedded API, 20,000 over 1,000 files", wall, 1.3, 1.1, 0}},
	},
	{
		sizes: []string{"large"}, limpet: increment(intoDirectory, thisSize, 2), against: limpetToo(increment(intoDirectory, mediumSize, 2)),
		goals: []goal{{"step-directory-size", "the same into a directory", wall, 1.3, 1.1, 0}},
	},
	{
		sizes: []string{"small", "medium"}, once: true, limpet: increment(intoAPI, thisSize, 200), against: limpetToo(increment(intoAPI, thisSize, 1)),
		goals: []goal{{"G7", "the commits from the 200th on over the first ones", wall, 1.2, 1.05, 0}},
	},
	{
		sizes: []string{"large"}, once: true, limpet: growth("medium", "large"), against: limpetToo(growth("medium")),
		goals: []goal{{"G9", "peak of an agent that syncs medium, then large, over one that syncs medium", rss, 1.6, 1.2, 0}},
	},
	{
		once: true, rounds: 1, limpet: idle,
		goals: []goal{
			{"G10", "1,000 sources that do not change, each looked at once a minute: over 2 % of a core", share, 1, 0.4, 0.02},
			{"G1-cpu", "one of these looks, processor over 0.5 ms", cpu, 1, 0, 0.0005},
			{"G10-rss", "its memory over 80 MB", rss, 1, 50. / 80, 80 * mb},
		},
	},
	{
		sizes: anySize, limpet: firstArtifact, against: gitArchive,
		goals: []goal{
			{"artifact", "first artifact, from the start of the process, over git clone --bare + git archive to gzip", wall, 0.8, 0, 0},
			{"artifact-rss", "its peak over 120 MiB", rss, 1, 0, 120 * mib},
		},
	},
	{
		sizes: anySize, limpet: repack, against: stdGzip,
		goals: []goal{{"G16", "an artifact from the mirror over gzip -6 of its tar with compress/gzip", wall, 1 / 1.5, 1 / 2.5, 0}},
	},
	{
		sizes: []string{"large"}, limpet: nextArtifact, against: limpetToo(repack),
		goals: []goal{{"G17", "the artifact of a commit of one file over one made anew", wall, 0.7, 0.3, 0}},
	},
	{
		once: true, limpet: burn(1, embedded), against: bare,
		goals: []goal{
			{"G11", "empty jobs, created 16 at once, each in the history, over create, claim, finish, delete by client-go", wall, 2, 1.25, 0},
		},
	},
	{
		once: true, limpet: burn(1, remote), against: bare,
		goals: []goal{{"G11-remote", "the same with the API in another process", wall, 1 / 0.85, 0, 0}},
	},
	{
		once: true, limpet: burn(8, remote), against: limpetToo(burn(1, remote)),
		goals: []goal{{"G12", "empty jobs by 8 agents over one", wall, 1 / 0.7, 1 / 0.75, 0}},
	},
	{
		once: true, limpet: counted(8, func(p *proxy) int64 { return p.conflicts.Load() }),
		goals: []goal{{"G12-lost", "lost claims for a job of 8 agents over 2 %", calls, 1, 0, 0.02}},
	},
	{goals: []goal{{"G12-double", "double runs of 8 agents, one of them killed", calls, 1, 0, 0}}},
	{
		once: true, limpet: counted(1, func(p *proxy) int64 { return p.calls.Load() }),
		goals: []goal{{"G13", "requests for a job over 4", calls, 1, 0.75, 4}},
	},
	{
		once: true, limpet: coldStart,
		goals: []goal{{"G14", "from the start of the process to the first claim, over 60 ms, with a history of 2,000 jobs", wall, 1, 25. / 60, 0.06}},
	},
	{
		sizes: []string{"small", "medium"}, once: true, limpet: writes, against: bareWrites,
		goals: []goal{{"G15", "a pull that changes each dashboard over a bare loop of PUT, 10 at once", wall, 1 / 0.6, 1 / 0.85, 0}},
	},
	{
		sizes: []string{"medium", "large"}, once: true, limpet: validate, against: jsonValid,
		goals: []goal{{"validate", "limpet validate over encoding/json.Valid of the same files, processor", cpu, 0, 0, 0}},
	},
	{goals: []goal{{"G18", "the scanner of a pull over encoding/json.Valid, one core", wall, 1, 0.5, 0}}},
	{
		sizes: []string{"medium", "large"}, once: true, limpet: dashboardSync, against: limpetToo(firstSync(intoDirectory)),
		goals: []goal{
			{"G19", "first sync into a directory with the dashboard on a terminal over without", wall, 1.03, 1.01, 0},
			{"G19-cpu", "the same, processor", cpu, 1.03, 1.01, 0},
		},
	},
	{goals: []goal{{"G20", "a hostile server: memory and time are bounded", rss, 1.5, 0, 0}}},
}
