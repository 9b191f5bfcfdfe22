package jobs

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"limpet/sync/kube"
)

// candidate is a job that nobody has claimed, on its way into the queue. There
// may be a hundred thousand of them.
type candidate struct {
	lane     *laneView
	created  int64 // Unix seconds
	job      int32 // which of all
	priority int8
	able     bool // as far as the picture tells, this agent can run it now
	chosen   bool
}

// laneView is what the jobs of one repository have in common.
type laneView struct {
	lane     lane
	selected bool // by the repository selector
	taken    int  // candidates that were chosen
}

// choose picks the jobs that go into the queue next, the oldest first, and tells
// which lanes have more of them. Of few jobs it picks all. Of a crowd it picks so
// that the queue decides as if it knew them all: of each repository the oldest
// ones, because of every four takes one goes by age, and the best ones by
// priority and age. What this agent cannot run keeps nothing else out: what the
// picture shows to be so comes last, and of what turns out to be so when a driver
// looks (a credential is missing) the oldest would come in again and again, so a
// part is picked by turn, through all that there are. It is called by list alone.
func (c *Controller) choose(all []kube.Object, limit int) (picked []candidate, outside map[lane]struct{}) {
	now, err := c.millis()
	if err != nil {
		now = 0 // then nothing is claimed anyway
	}
	lanes := map[lane]*laneView{}
	found := make([]candidate, 0, len(all))
	for i, job := range all {
		if claimedSight(job) {
			continue
		}
		c.o.Meter.Seen(SourceRelist, -1)
		l := laneOfSight(job)
		v := lanes[l]
		if v == nil {
			v = c.viewLane(l)
			lanes[l] = v
		}
		x := candidate{job: int32(i), lane: v, created: job.Created().Unix(), priority: int8(c.priorityOfSight(job))}
		rest, _ := strconv.ParseInt(job.Text(pathNotBefore), 10, 64)
		x.able = v.selected && rest <= now && c.handles(job.Text(pathAction))
		found = append(found, x)
	}
	sort.Slice(found, func(i, j int) bool {
		a, b := found[i], found[j]
		return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(all[a.job].Key(), all[b.job].Key())) < 0
	})
	if len(found) <= limit {
		return found, nil
	}
	outside = map[lane]struct{}{}
	share := max(laneShare, limit/len(lanes))
	pickedSoFar := c.chooseByTurn(found, all, limit/turnShare)
	pick := func(most, each int, able bool, priority int) {
		for i := range found {
			x := &found[i]
			if pickedSoFar >= most {
				return
			}
			if x.chosen || x.able != able || priority >= 0 && int(x.priority) != priority || x.lane.taken >= each {
				continue
			}
			x.chosen = true
			x.lane.taken++
			pickedSoFar++
		}
	}
	byRank := func(each int) {
		for p := highest; p >= 0; p-- {
			pick(limit, each, true, p)
		}
	}
	pick(pickedSoFar+limit/agedShare, max(1, share/agedShare), true, unranked)
	byRank(share)
	byRank(limit)
	pick(limit, limit, false, unranked)
	for _, x := range found {
		if x.chosen {
			picked = append(picked, x)
		} else if x.able {
			outside[x.lane.lane] = struct{}{}
		}
	}
	return picked, outside
}

// turnShare is one in how many names that are picked by turn.
const turnShare = 4

// chooseByTurn picks up to n of the candidates that follow those of the last time.
func (c *Controller) chooseByTurn(found []candidate, all []kube.Object, n int) (picked int) {
	at, _ := slices.BinarySearchFunc(found, c.turn, func(x candidate, t turn) int {
		return cmp.Or(cmp.Compare(x.created, t.created), strings.Compare(all[x.job].Key(), t.key))
	})
	for i := range found {
		x := &found[(at+i)%len(found)]
		if picked == n {
			c.turn = turn{x.created, all[x.job].Key()}
			break
		}
		if x.able {
			x.chosen = true
			x.lane.taken++
			picked++
		}
	}
	return picked
}

// turn is where to go on by turn.
type turn struct {
	created int64
	key     string
}

// viewLane looks at the repository of a lane.
func (c *Controller) viewLane(l lane) *laneView {
	v := &laneView{lane: l, selected: c.o.Selector.Empty()}
	if repo, ok := c.repos.Get(l.Namespace, l.Repository); ok {
		v.selected = c.selected(repo)
	}
	return v
}

// handles says whether this agent runs jobs of an action.
func (c *Controller) handles(action string) bool {
	return c.workers[action] != nil && (len(c.o.Actions) == 0 || slices.Contains(c.o.Actions, action))
}

// fillRest is the least time between two looks when the queue is short of names:
// a look at a hundred thousand jobs takes a tenth of a second. It is longer each
// time when this agent has claimed none of what came in: then its drivers ask the
// API about jobs that they leave. It is called by list alone.
func (c *Controller) fillRest() time.Duration {
	won, _ := c.rivalry.races()
	if won > c.wonBefore || c.fillAfter == 0 {
		c.wonBefore, c.fillAfter = won, fillPause
	} else {
		c.fillAfter = min(2*c.fillAfter, c.o.Interval)
	}
	return c.fillAfter
}

// fillPause is the shortest fillRest.
const fillPause = 2 * time.Second

// fill brings the jobs that come next into the queue.
func (c *Controller) fill() {
	c.queue.beginFilling()
	all := c.jobs.Objects()
	picked, outside := c.choose(all, queueLimit)
	picks := make([]pick, 0, len(picked))
	for _, x := range picked {
		picks = append(picks, pick{keyOfSight(all[x.job]), x.lane.lane, int(x.priority)})
	}
	c.queue.endFilling(picks, outside)
}
