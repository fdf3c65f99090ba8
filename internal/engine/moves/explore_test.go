package moves_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"dbcontroller.dev/internal/engine/moves"
	"dbcontroller.dev/resource/region"
)

// The model has one record, two regions with their copies of each other's record, and movers that read and
// write at different times. Movers take their steps by moves.Decide and moves.Standing.

// move is a region.Move. Regions, ids and nonces are numbers; 0 is none.
type move struct{ step, region, id, nonce uint8 }

var steps = []region.Step{"", region.Leaving, region.Left, region.Arriving, region.Arrived, region.Missing}

const (
	leaving = 1
	left    = 2
	arrived = 4
	missing = 5
)

func text(n uint8) string {
	if n == 0 {
		return ""
	}
	return string('0' + rune(n))
}

func number(s string) uint8 {
	if s == "" {
		return 0
	}
	return s[0] - '0'
}

func (m move) real() region.Move {
	return region.Move{Step: steps[m.step], Region: text(m.region), ID: text(m.id), Nonce: text(m.nonce)}
}

func moveOf(m region.Move) move {
	return move{uint8(slices.Index(steps, m.Step)), number(m.Region), number(m.ID), number(m.Nonce)}
}

// rec is the record of a region, or a copy of it.
type rec struct {
	there   bool
	move    move
	content uint8
}

func (r rec) owned() bool { return r.there && r.move.real().Owns() }

// intent is a step that a mover has decided on and not made yet.
type intent struct {
	do     moves.Do
	saw    rec // the own record
	next   move
	copied rec // for moves.Reserve
}

const movers = 2 // that sleep between their decision and their write, in each region

// state is one state of the model. It is comparable.
type state struct {
	recs, copies, before [2]rec // copies[i] is region i's copy of the other's record; before are former records
	intents              [2][movers]intent
	content              uint8 // acknowledged last
	deleted              bool
	// What is left of what clients and the world can do.
	moves, nonces, writes, switches, lags uint8
}

// rules are what a mutant leaves out.
type rules struct {
	askCopy       bool // instead of the other region
	oneNonce      bool // for all moves
	blindWrites   bool // of movers, without a condition
	blindCancel   bool // also of a record that left
	eager         bool // a reservation becomes owned while the old owner can cancel
	unreserved    bool // a record leaves without a reservation
	noAsk         bool // what has no counterpart in the copies goes
	noReservation bool // a record arrives from the copy of one that left
	unsettled     bool // clients delete and move a record before the old owner has deleted its part
}

// budget is what can happen in one exploration.
type budget struct{ moves, nonces, writes, switches, lags, sleepers uint8 }

// budgets are explored one by one: all of them together have too many states.
var budgets = map[string]budget{
	"there and back":            {moves: 2, nonces: 2, sleepers: 1},
	"there and back, writes":    {moves: 2, nonces: 2, writes: 1, switches: 1},
	"one move, sleeping movers": {moves: 1, nonces: 2, writes: 1, lags: 1, sleepers: 2},
	"one move, switches":        {moves: 1, nonces: 2, switches: 1, lags: 1, sleepers: 1},
}

// model explores with one budget. It remembers what movers decide and how regions settle.
type model struct {
	rules
	budget
	decisions map[situation]moves.Decision
	settled   map[quiet]string
}

type situation struct {
	i           int
	own, copied rec
}

type quiet struct {
	recs, copies [2]rec
	content      uint8
	deleted      bool
}

func (r rules) model(b budget) *model {
	return &model{r, b, map[situation]moves.Decision{}, map[quiet]string{}}
}

func (m *model) start() state {
	s := state{moves: m.moves, nonces: m.nonces, writes: m.writes, switches: m.switches, lags: m.lags}
	s.recs[0] = rec{there: true}
	return s
}

// decision is moves.Decide with what a mutant does instead. A nonce is "1".
func (r rules) decision(at situation) moves.Decision {
	var own *region.Move
	if at.own.there {
		m := at.own.move.real()
		own = &m
	}
	here, there := text(uint8(at.i+1)), text(uint8(2-at.i))
	copies := map[string]region.Move{}
	if at.copied.there {
		copies[there] = at.copied.move.real()
	}
	d := moves.Decide(here, own, copies, func() string { return "1" })
	c := copies[there]
	switch {
	case r.eager && own != nil && own.Step == region.Arriving && d.Do == moves.Wait:
		d = moves.Decision{Do: moves.Write, Next: region.Move{Step: region.Arrived, Region: there, ID: own.ID, Nonce: own.Nonce}}
	case r.unreserved && own != nil && own.Step == region.Leaving:
		d = moves.Decision{Do: moves.Write, Next: region.Move{Step: region.Left, Region: there, ID: own.ID, Nonce: "1"}}
	case r.noReservation && own == nil && c.Step == region.Left && c.Region == here:
		d = moves.Decision{Do: moves.Reserve, Next: region.Move{Step: region.Arrived, Region: there, ID: c.ID, Nonce: c.Nonce}}
	}
	return d
}

// decide returns what a mover of region i does in this state, and the state in which it has used up a nonce.
func (m *model) decide(s state, i int) (state, intent, bool) {
	at := situation{i, s.recs[i], s.copies[i]}
	d, known := m.decisions[at]
	if !known {
		d = m.decision(at)
		m.decisions[at] = d
	}
	next := moveOf(d.Next)
	switch d.Do {
	case moves.Confirm:
		theirs := s.recs[1-i]
		if m.askCopy {
			theirs = s.copies[i]
		}
		if !m.noAsk && theirs.there && moves.Standing(text(uint8(i+1)), s.recs[i].move.real(), theirs.move.real()) {
			return s, intent{}, false
		}
		d.Do = moves.Delete
		if next = s.recs[i].move; next.step == left {
			d.Do, next.step = moves.Write, missing
		}
	case moves.Reserve:
		if !m.oneNonce {
			if s.nonces == 0 {
				return s, intent{}, false
			}
			next.nonce = s.nonces
			s.nonces--
		}
	case moves.Write, moves.Delete:
	default:
		return s, intent{}, false
	}
	return s, intent{d.Do, s.recs[i], next, s.copies[i]}, true
}

// set changes the record of a region.
func (s *state) set(i int, r rec) {
	if s.recs[i] != r {
		s.before[i], s.recs[i] = s.recs[i], r
	}
}

// apply makes a step of region i.
func (r rules) apply(s state, i int, in intent) state {
	if s.recs[i] != in.saw && !r.blindWrites {
		return s
	}
	switch in.do {
	case moves.Write:
		next := s.recs[i]
		next.move = in.next
		s.set(i, next)
	case moves.Reserve:
		s.set(i, rec{true, in.next, in.copied.content})
	case moves.Delete:
		s.set(i, rec{})
	default:
	}
	return s
}

// step is a state with what led to it: an act in a region, by one of its movers.
type step struct {
	state
	act
}

type act struct {
	what      string
	of, mover uint8
}

func (a act) String() string { return fmt.Sprintf("%s (region %d, mover %d)", a.what, a.of, a.mover) }

// next returns all states that follow.
func (r *model) next(s state) (out []step) {
	add := func(what string, s state, i, m int) { out = append(out, step{s, act{what, uint8(i), uint8(m)}}) }
	for i := range 2 {
		own := s.recs[i]
		// Clients.
		settled := r.unsettled || own.move.step != arrived || !s.copies[i].there || s.copies[i].move != move{left, uint8(i + 1), own.move.id, own.move.nonce}
		if own.owned() && settled {
			d := s
			d.set(i, rec{})
			d.deleted = true
			add("delete", d, i, 0)
		}
		if own.owned() && own.move.step != leaving {
			if s.writes > 0 {
				w := s
				w.writes--
				w.content++
				own.content = w.content
				w.set(i, own)
				add("write", w, i, 0)
				own = s.recs[i]
			}
			if s.moves > 0 && settled {
				m := s
				own.move = move{step: leaving, region: uint8(2 - i), id: s.moves}
				m.moves--
				m.set(i, own)
				add("move", m, i, 0)
				own = s.recs[i]
			}
		}
		if own.there && (own.move.step == leaving || r.blindCancel && own.move.step == left) {
			c := s
			own.move = move{}
			c.set(i, own)
			add("cancel", c, i, 0)
		}
		// Copies follow, or are made anew in another namespace, or were made of an old state.
		c := s
		c.copies[i] = s.recs[1-i]
		add("copy", c, i, 0)
		if s.switches > 0 {
			c := s
			c.copies[i] = rec{}
			c.switches--
			add("switch", c, i, 0)
		}
		if s.lags > 0 {
			c := s
			c.copies[i] = s.before[1-i]
			c.lags--
			add("old copy", c, i, 0)
		}
		// Movers.
		if decided, in, ok := r.decide(s, i); ok {
			add("step", r.apply(decided, i, in), i, 0)
			for m := range r.sleepers {
				if s.intents[i][m].do == moves.Nothing {
					sleeps := decided
					sleeps.intents[i][m] = in
					add("decide", sleeps, i, int(m))
					break // movers are alike
				}
			}
		}
		for m := range movers {
			if in := s.intents[i][m]; in.do != moves.Nothing {
				late := s
				late.intents[i][m] = intent{}
				add("write late", r.apply(late, i, in), i, m)
			}
		}
	}
	return out
}

// wrong returns what no state may be, or "".
func (s state) wrong() string {
	owners := 0
	for _, r := range s.recs {
		if !r.owned() {
			continue
		}
		if owners++; r.content != s.content {
			return "a write is lost"
		}
	}
	switch {
	case owners > 1:
		return "owned twice"
	case owners > 0 && s.deleted:
		return "a deleted record is back"
	case owners == 0 && !s.deleted && !s.recs[0].away() && !s.recs[1].away():
		return "the record is lost"
	}
	return ""
}

// away reports whether a region has given a record away and still has it.
func (r rec) away() bool { return r.move.step == left || r.move.step == missing }

// settles lets copies follow and movers work until nothing changes. It returns what is wrong then, or "".
func (r *model) settles(s state) string {
	from := quiet{s.recs, s.copies, s.content, s.deleted}
	wrong, known := r.settled[from]
	if !known {
		wrong = r.settle(s)
		r.settled[from] = wrong
	}
	return wrong
}

func (m *model) settle(s state) string {
	const fresh = 40 // above all nonces of the exploration
	s.intents, s.nonces = [2][movers]intent{}, fresh
	for range 20 {
		was := s
		for i := range 2 {
			s.copies[i] = s.recs[1-i]
			if decided, in, ok := m.decide(s, i); ok {
				s = m.apply(decided, i, in)
			}
		}
		was.nonces = s.nonces
		if s == was {
			// Only a region that has lost its copies can have deleted the record, or moved it on, before the
			// other one knew of its arrival. A person ends that.
			held := s.recs[0].move.step == missing || s.recs[1].move.step == missing
			if over := s.deleted || s.recs[0].owned() || s.recs[1].owned(); held && over && m.switches+m.lags > 0 {
				return s.wrong()
			}
			for _, r := range s.recs {
				if r.there && (!r.owned() || r.move.step == leaving) {
					return fmt.Sprintf("a move does not end: %+v", s.recs)
				}
			}
			return s.wrong()
		}
	}
	return "the regions do not settle"
}

// explore returns the number of states, and the way to the first wrong one with what is wrong.
func (r *model) explore() (states int, way []string, wrong string) {
	type from struct {
		act
		state int32
	}
	first := r.start()
	seen, all, ways := map[state]bool{first: true}, []state{first}, []from{{}}
	for at := 0; at < len(all); at++ {
		s := all[at]
		if wrong = s.wrong(); wrong == "" {
			wrong = r.settles(s)
		}
		if wrong != "" {
			for n := int32(at); n > 0; n = ways[n].state {
				way = append(way, ways[n].String())
			}
			slices.Reverse(way)
			return len(all), way, wrong
		}
		for _, next := range r.next(s) {
			if !seen[next.state] {
				seen[next.state] = true
				all, ways = append(all, next.state), append(ways, from{next.act, int32(at)})
			}
		}
	}
	return len(all), nil, ""
}

// TestExplore: in all interleavings of clients, copies, switches and movers that sleep, a record that
// moves there and back is never owned twice, never lost or brought back, no write is lost, and every
// move ends.
func TestExplore(t *testing.T) {
	t.Parallel()
	for name, b := range budgets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, way, wrong := rules{}.model(b).explore()
			if wrong != "" {
				t.Errorf("%s after %s", wrong, strings.Join(way, ", "))
			}
			t.Logf("%d states", states)
			if states < 1000 {
				t.Errorf("only %d states", states)
			}
		})
	}
}

// TestExploreFinds: without one of the rules, the exploration finds what is wrong.
func TestExploreFinds(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]rules{
		"the answer of the other region is old":         {askCopy: true},
		"a reservation without a nonce of its own":      {oneNonce: true},
		"a step without a condition":                    {blindWrites: true},
		"a cancel without a condition":                  {blindCancel: true},
		"the new owner does not wait":                   {eager: true},
		"the old owner does not wait":                   {unreserved: true},
		"a missing copy proves that there is no record": {noAsk: true},
		"a record arrives without a reservation":        {noReservation: true},
		"the new owner ends it before the old one":      {unsettled: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, b := range budgets {
				if _, way, wrong := r.model(b).explore(); wrong != "" {
					t.Logf("%s: %s after %s", what, wrong, strings.Join(way, ", "))
					return
				}
			}
			t.Error("nothing is found")
		})
	}
}
