package syncer

import (
	"maps"
	"strconv"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
)

// shard is what the engine knows of a shard that it owns. Guarded by Engine.mu.
type shard struct {
	lock    shards.Lock
	leaving bool
	// followed: the running stream began at or before the shard's position. Without it
	// the shard waits for another stream.
	followed bool

	// copying
	todo   map[string]*rangeTask // by "<kind>/<index>", what is not copied yet
	names  []string              // of all its ranges, in the order of a checkpoint's bits
	done   map[string]bool       // by name
	copied int64

	// following: applied is how far changes are applied, compared how far they are also
	// compared again. late holds the groups applied since and not compared yet.
	applied  place
	compared place
	late     map[transform.GroupID]lateEntry
	deleted  int // of Engine.deleted, those of this shard
	lateSeq  uint64
	lateSize int       // about how many bytes late takes
	heard    time.Time // when the stream last delivered something; zero: not yet
	lag      time.Duration
	inSync   time.Time     // since when changes are applied as they come; zero while they are not
	behind   time.Time     // since when they are not; zero while they are
	took     time.Duration // for the latest batch of changes, from its arrival on

	// comparing the whole
	verify   []*rangeTask // nil: none were planned yet
	verified bool
	found    int // entries of late that this comparison, or a rescan, found
	// rescan: the history of the source was lost. The shard's groups wait to be compared
	// from both sides, at reads that are not older than compared. rescanned: that was done
	// here at least once, so that found may be of it.
	rescan, rescanned bool
	fences            uint64 // Checkpoint.Fences
	repair            string // Checkpoint.Repair

	// watching the target: watched is how far its changes were looked at for those of others. The
	// zero position: not at all, for everything is still to be compared. foreign counts entries of
	// late that others have changed there.
	watched   record.Position
	watching  bool      // the running stream of the target began at or before watched
	watchedAt time.Time // when that stream last delivered something
	foreign   int

	dirty  bool // the checkpoint in memory is ahead of the stored one
	stored bool // by the stored checkpoint the shard is complete
	anew   int  // how often compareAnew was called: a checkpoint from before it shows nothing

	appliedCount, comparedCount, retries int64
	rate                                 meter
}

// place is how far a shard has followed the changes, and what it met up to there.
type place struct {
	at          record.Position
	markers     map[string]string // the latest fence of each kind; never modified
	lateDeletes int64
}

// after is the place behind a batch.
func (p place) after(b record.ChangeBatch, lateDeletes int64) place {
	p.at = b.Pos
	p.lateDeletes += lateDeletes
	for _, c := range b.Changes {
		if c.Marker != "" && p.markers[c.Kind] != c.Marker {
			markers := map[string]string{}
			maps.Copy(markers, p.markers)
			markers[c.Kind] = c.Marker
			p.markers = markers
		}
	}
	return p
}

// addLate notes a group that changed for a comparison. The position of the change must not
// count as applied yet. Engine.mu is held.
func (s *shard) addLate(id transform.GroupID) {
	s.lateSeq++
	if _, there := s.late[id]; !there {
		s.lateSize += lateSize(id)
	}
	before := s.late[id]
	s.late[id] = lateEntry{seq: s.lateSeq, found: before.found, noted: before.noted, from: s.applied, target: before.target}
}

// addAgain notes a group for another comparison, without a change of its own: what it waits
// for already is not compared for that. Engine.mu is held.
func (s *shard) addAgain(id transform.GroupID) {
	before, late := s.late[id]
	s.addLate(id)
	if entry := s.late[id]; late {
		entry.from = before.from
		s.late[id] = entry
	}
}

// moveCompared moves the compared position as far as nothing that was applied before it
// waits to be compared, and reports whether it did. Engine.mu is held.
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

// addDifferent notes a group that the comparison of a range found different. Until it
// has agreed the shard does not count as compared, no matter which controller owns it.
// Engine.mu is held.
func (s *shard) addDifferent(id transform.GroupID) {
	s.addAgain(id)
	entry := s.late[id]
	if !entry.found {
		s.found++
	}
	entry.found, entry.noted = true, entry.seq
	s.late[id] = entry
}

// dropLate forgets a group that is equal, or parked. Engine.mu is held.
func (s *shard) dropLate(id transform.GroupID) {
	if _, there := s.late[id]; !there {
		return
	}
	s.dropNotes(id)
	delete(s.late, id)
	s.lateSize -= lateSize(id)
}

// dropNotes forgets that a comparison found a group different, and that others changed it, and
// reports whether one of these was noted. Engine.mu is held.
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

// lateSize is about what an entry of late takes, while a round compares it as well.
func lateSize(id transform.GroupID) int { return 2*len(id.Name) + 300 }

// roomForLate reports whether more groups may wait for their second comparison. What would
// add some waits: changes, and comparisons of ranges. Engine.mu is held.
func (e *Engine) roomForLate() bool {
	size := 0
	for _, s := range e.shards {
		size += s.lateSize
	}
	return size < e.cfg.LateBytes
}

// complete reports whether the shard is copied and compared as a whole, and what that
// found agrees now. Engine.mu is held.
func (s *shard) complete() bool {
	return len(s.todo) == 0 && s.verified && !s.rescan && s.found == 0 && !s.watched.IsZero()
}

// job is what is done with a range.
type job int

const (
	copies job = iota + 1
	compares
	rescans
)

func (j job) String() string {
	return [...]string{copies: "copy", compares: "compare", rescans: "rescan"}[j]
}

// rangeTask is one range of one kind, being copied or compared.
type rangeTask struct {
	job   job
	shard int    // that it is a part of, -1 for a rescan
	name  string // "<kind>/<index>"
	kind  string
	rest  record.Range
	begun bool // rest is no longer the whole range
	// mark is what a checkpoint holds of rest.From: the latest place that is short enough
	// to be stored. From there on a few records are copied twice.
	mark   record.Cursor
	target bool // compare from the target's side
	taken  bool
}

// what is the work as people read it.
func (t *rangeTask) what() string { return t.job.String() + " " + t.name }

// longestMark is how many bytes of a place are stored, many times a minute for each range.
const longestMark = 4 << 10

// moveTo begins the rest of a range that is copied at a later place.
func (t *rangeTask) moveTo(at record.Cursor) {
	t.rest.From, t.begun = at, true
	if len(at) <= longestMark {
		t.mark = at
	}
}

// compareAnew makes nothing count that was compared until now. Engine.mu is held.
func (s *shard) compareAnew() {
	s.rescan, s.stored, s.dirty = true, false, true
	s.anew++
}

// stored is the rest of a range as a checkpoint has it.
func (t *rangeTask) stored() record.Range { return record.Range{From: t.mark, To: t.rest.To} }

func rangeName(kind string, i int) string { return kind + "/" + strconv.Itoa(i) }
