package syncer

import (
	"maps"
	"strconv"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
)

// shard is the engine's state of an owned shard. Engine.mu guards it.
type shard struct {
	lock    shards.Lock
	leaving bool
	// followed means that the running stream began at or before the shard's position. A shard
	// without it waits for another stream.
	followed bool

	// The copy.
	todo   map[string]*rangeTask // remaining ranges, by "<kind>/<index>"
	names  []string              // of all ranges, in the order of Checkpoint.DoneBits
	done   map[string]bool       // copied ranges, by name
	copied int64

	// The stream. applied is the place up to which changes are applied, and compared the place up
	// to which they are also compared. late holds the groups applied and not compared yet.
	applied  place
	compared place
	late     map[transform.GroupID]lateEntry
	left     place // Checkpoint.Left and LeftMarkers
	lateSeq  uint64
	lateSize int       // approximate bytes of late
	heard    time.Time // last delivery of the stream; zero: none yet
	lag      time.Duration
	inSync   time.Time     // since when batches are applied within LagBound; zero while they are not
	behind   time.Time     // since when they are not; zero while they are
	took     time.Duration // time to apply the latest batch, from its arrival

	// The whole comparison.
	verify   []*rangeTask // remaining ranges; nil before they are planned
	verified bool
	found    int // entries of late that the comparison or a rescan has found
	// rescan means that the history of the source was lost: the shard's groups wait for a
	// comparison of both sides at reads not older than compared. rescanned means that a rescan has
	// run here, so that found may count its differences.
	rescan, rescanned bool
	fences            uint64 // Checkpoint.Fences
	repair            string // Checkpoint.Repair

	// The stream of the target. watched is the place up to which foreign changes of the target were
	// checked. The zero position means that the shard needs a whole comparison first. foreign
	// counts entries of late with foreign changes.
	watched   record.Position
	watching  bool      // the running stream of the target began at or before watched
	watchedAt time.Time // last delivery of that stream
	foreign   int

	dirty  bool // the state is ahead of the stored checkpoint
	stored bool // the stored checkpoint shows the shard complete
	anew   int  // calls of compareAnew; a checkpoint made before the last one proves nothing

	appliedCount, comparedCount, retries int64
	rate                                 meter
}

// place is a position in the source's changes, with facts that hold up to there.
type place struct {
	at          record.Position
	markers     map[string]string // latest fence of each kind; never modified in place
	lateDeletes int64
}

// after returns the place behind a batch.
func (p place) after(b record.ChangeBatch, lateDeletes int64) place {
	p.at = b.Pos
	p.lateDeletes += lateDeletes
	for _, c := range b.Changes {
		if c.Marker != "" && p.markers[c.Kind] != c.Marker {
			// Other places share the map, so it is copied before the change.
			markers := map[string]string{}
			maps.Copy(markers, p.markers)
			markers[c.Kind] = c.Marker
			p.markers = markers
		}
	}
	return p
}

// leaving returns the place for the end of the direction. Its markers are not nil, which in a
// checkpoint would mean that they are unknown.
func (p place) leaving() place {
	if p.markers == nil {
		p.markers = map[string]string{}
	}
	return p
}

// addLate adds a changed group to the late set. Call it before applied moves past the change, or
// the checkpoint could pass a change that is not compared. Engine.mu is held.
func (s *shard) addLate(id transform.GroupID) {
	s.lateSeq++
	if _, there := s.late[id]; !there {
		s.lateSize += lateSize(id)
	}
	before := s.late[id]
	s.late[id] = lateEntry{seq: s.lateSeq, found: before.found, noted: before.noted, from: s.applied, target: before.target}
}

// addAgain adds a group for another comparison without a change of its own. A group that is already
// late keeps its earlier place. Engine.mu is held.
func (s *shard) addAgain(id transform.GroupID) {
	before, late := s.late[id]
	s.addLate(id)
	entry := s.late[id]
	// No change of the source comes that a round could leave the notes to.
	entry.noted = entry.seq
	if late {
		entry.from = before.from
	}
	s.late[id] = entry
}

// moveCompared advances compared up to the earliest late group, and reports whether it moved.
// Engine.mu is held.
func (s *shard) moveCompared() bool {
	to := s.applied
	for _, entry := range s.late {
		if entry.from.at.Compare(to.at) < 0 {
			to = entry.from
		}
	}
	further := to.at.Compare(s.compared.at) // a rescan begins further on
	if further < 0 || further == 0 && len(s.late) > 0 {
		return false
	}
	s.compared, s.dirty = to, true
	return true
}

// addDifferent adds a group that the comparison of a range found different. The shard does not
// count as compared until the group is equal, on whichever controller owns it. Engine.mu is held.
func (s *shard) addDifferent(id transform.GroupID) {
	s.addAgain(id)
	entry := s.late[id]
	if !entry.found {
		s.found++
	}
	entry.found = true
	s.late[id] = entry
}

// dropLate removes a group that is equal or parked. Engine.mu is held.
func (s *shard) dropLate(id transform.GroupID) {
	if _, there := s.late[id]; !there {
		return
	}
	s.dropNotes(id)
	delete(s.late, id)
	s.lateSize -= lateSize(id)
}

// dropNotes clears found and target of a late group, and reports whether one of them was set.
// Engine.mu is held.
func (s *shard) dropNotes(id transform.GroupID) bool {
	entry := s.late[id]
	if !entry.found && entry.target.IsZero() {
		return false
	}
	if entry.found {
		s.found--
	}
	if !entry.target.IsZero() {
		s.foreign--
	}
	entry.found, entry.target = false, record.Position{}
	s.late[id], s.dirty = entry, true
	return true
}

// lateSize is the approximate size of a late entry in bytes, including its part of a round.
func lateSize(id transform.GroupID) int { return 2*len(id.Name) + 300 }

// roomForLate reports whether the late sets have room. Without it the stream and the comparison of
// ranges wait. Engine.mu is held.
func (e *Engine) roomForLate() bool {
	size := 0
	for _, s := range e.shards {
		size += s.lateSize
	}
	return size < e.cfg.LateBytes
}

// complete reports whether the shard is copied and compared as a whole, and all differences are
// gone. Engine.mu is held.
func (s *shard) complete() bool {
	return len(s.todo) == 0 && s.verified && !s.rescan && s.found == 0 && !s.watched.IsZero()
}

// job is the kind of work on a range.
type job int

const (
	copies job = iota + 1
	compares
	rescans
)

func (j job) String() string {
	return [...]string{copies: "copy", compares: "compare", rescans: "rescan"}[j]
}

// rangeTask is one range of a kind with work to do.
type rangeTask struct {
	job   job
	shard int    // the shard it belongs to, -1 for a rescan
	name  string // "<kind>/<index>"
	kind  string
	rest  record.Range
	begun bool // rest is no longer the whole range
	// mark is the stored form of rest.From: the latest cursor that is short enough for a
	// checkpoint. A new owner copies the records between mark and rest.From twice.
	mark   record.Cursor
	target bool // compares from the target's side
	taken  bool // a worker has it
}

// what returns a name of the work for people.
func (t *rangeTask) what() string { return t.job.String() + " " + t.name }

// longestMark is the maximum length of a stored cursor in bytes. Each range stores one several
// times a minute.
const longestMark = 4 << 10

// moveTo advances a range that is copied.
func (t *rangeTask) moveTo(at record.Cursor) {
	t.rest.From, t.begun = at, true
	if len(at) <= longestMark {
		t.mark = at
	}
}

// compareAnew discards all results of comparisons. Engine.mu is held.
func (s *shard) compareAnew() {
	s.rescan, s.stored, s.dirty = true, false, true
	s.anew++
}

// stored returns the rest of a range for a checkpoint.
func (t *rangeTask) stored() record.Range { return record.Range{From: t.mark, To: t.rest.To} }

func rangeName(kind string, i int) string { return kind + "/" + strconv.Itoa(i) }
