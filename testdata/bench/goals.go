package main

// anySize are the repositories of goals that hold for each.
var anySize = []string{"small", "medium", "large"}

// races have the goals G1 to G20, and those of a first sync and of an increment, in this order.
var races = []race{
	{
		sizes: anySize, limpet: firstSync(true), against: clone("clone"),
		goals: []goal{
			{"G3", "first sync into a directory, from the start of the process, over git clone --depth 1 + read + parse", wall, 0.75, 0.5},
			{"G3-cpu", "the same, processor", cpu, 1, 0},
		},
	},
}
