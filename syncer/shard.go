package syncer

import (
	"maps"
	"strconv"
	"time"

	"dbcontroller/record"
	"dbcontroller/shards"
	"dbcontroller/transform"
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
	done   []string
	copied int64

	// following: applied is how far changes are applied, compared how far they are also
	// compared again. late holds the groups applied since and not compared yet.
	applied  place
	compared place
	late     map[transform.GroupID]lateEntry
	lateSeq  uint64
	heard    time.Time // when the stream last said something; zero: not yet
	lag      time.Duration
	level    time.Time // since when changes are applied as they come; zero while they are not
	behind   time.Time // since when they are not; zero while they are

	// comparing the whole
	verify   []*rangeTask
	verified bool
	found    int // entries of late that this comparison, or a rescan, found
	// rescan: the history of the source was lost. The shard's groups wait to be compared
	// from both sides, at reads that are not older than compared. rescanned: that was done
	// here at least once, so that found may be of it.
	rescan, rescanned bool

	dirty  bool // the checkpoint in memory is ahead of the stored one
	stored bool // the stored checkpoint says that the shard is complete

	appliedCount, comparedCount, mismatched, retries int64
	rate                                             meter
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

// addLate notes a group for (another) comparison. Engine.mu is held.
func (s *shard) addLate(id transform.GroupID) {
	s.lateSeq++
	s.late[id] = lateEntry{seq: s.lateSeq, found: s.late[id].found}
}

// addDifferent notes a group that the comparison of a range found different. Until it
// has settled the shard does not count as compared, whoever owns it. Engine.mu is held.
func (s *shard) addDifferent(id transform.GroupID) {
	s.addLate(id)
	entry := s.late[id]
	if !entry.found {
		s.found++
	}
	entry.found = true
	s.late[id] = entry
}

// dropLate forgets a group that is equal, or parked. Engine.mu is held.
func (s *shard) dropLate(id transform.GroupID) {
	if s.late[id].found {
		s.found--
		s.dirty = true
	}
	delete(s.late, id)
}

// complete reports whether the shard is copied and compared as a whole, and what that
// found has settled. Engine.mu is held.
func (s *shard) complete() bool {
	return len(s.todo) == 0 && s.verified && !s.rescan && s.found == 0
}

// job is what is done with a range.
type job int

const (
	copies job = iota + 1
	compares
	rescans
)

// rangeTask is one range of one kind, being copied or compared.
type rangeTask struct {
	job    job
	shard  int    // that it is a part of, -1 for a rescan
	name   string // "<kind>/<index>"
	kind   string
	rest   record.Range
	target bool // compare from the target's side
	taken  bool
}

// what is the work as people read it.
func (t *rangeTask) what() string {
	switch t.job {
	case copies:
		return "copy " + t.name
	case compares:
		return "compare " + t.name
	case rescans:
		return "rescan " + t.name
	default:
		return t.name
	}
}

func rangeName(kind string, i int) string { return kind + "/" + strconv.Itoa(i) }
