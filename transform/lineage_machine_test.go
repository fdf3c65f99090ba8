package transform_test

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// machine is the state machine of TestLineage.
type machine struct {
	ctx ctx
	w   *teams
	// pending are the units that still have to be delivered, each with a version that its
	// change is not newer than.
	pending []event
	held    []heldBatch // read, and not written yet
	source  map[string]oldDoc
}

type event struct {
	id transform.GroupID
	at record.Version
}

type heldBatch struct {
	events []event
	cs     []transform.Component
	again  bool // somebody else has been given the units too
}

func newMachine(t *rapid.T) *machine {
	return &machine{ctx: context.Background(), w: newTeams(context.Background(), t), source: map[string]oldDoc{}}
}

func (m *machine) change(t *rapid.T, ms ...record.Mutation) {
	m.w.t = t
	ids, at := m.w.write(m.ctx, ms...)
	for _, id := range ids {
		m.pending = append(m.pending, event{id, at})
	}
	for _, mu := range ms {
		key := mu.Kind + "/" + mu.Key.String()
		if mu.Doc == nil {
			delete(m.source, key)
			continue
		}
		m.source[key] = decoded[oldDoc](record.Record{Doc: mu.Doc})
	}
}

var (
	kindGen = rapid.SampledFrom([]string{"people1", "people1", "desks1", "teams1"})
	idGen   = rapid.SampledFrom([]string{"a", "b", "c", "d"})
	teamGen = rapid.SampledFrom([]string{"a", "b", "red", "red", "blue", "blue", "red", "blue", "green", ""})
	seatGen = rapid.SampledFrom([]string{"", "", "s1", "s2", "s3"})
	nGen    = rapid.SampledFrom([]int{1, 2, 3, 4, 5, 6, -1})
)

func (m *machine) put(t *rapid.T) {
	m.change(t, set(kindGen.Draw(t, "kind"), idGen.Draw(t, "id"), teamGen.Draw(t, "team"), seatGen.Draw(t, "seat"), nGen.Draw(t, "n")))
}

// present draws a record of the source that content can move.
func (m *machine) present(t *rapid.T, label string) (kind string, d oldDoc, ok bool) {
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(m.source)), func(k string) bool { return k[0] == 't' })
	if len(keys) == 0 {
		return "", d, false
	}
	key := rapid.SampledFrom(keys).Draw(t, label)
	d = m.source[key]
	return key[:len(key)-len(d.ID)-1], d, true
}

func (m *machine) move(t *rapid.T) {
	kind, d, ok := m.present(t, "who")
	if !ok {
		t.Skip("nobody is there")
	}
	m.change(t, set(kind, d.ID, teamGen.Draw(t, "to"), d.Seat, d.N))
}

// swap exchanges teams or seats, in one write.
func (m *machine) swap(t *rapid.T) {
	if !m.exchange(t) {
		t.Skip("nobody to swap with")
	}
}

func (m *machine) exchange(t *rapid.T) bool {
	ka, a, ok := m.present(t, "a")
	kb, b, _ := m.present(t, "b")
	if !ok || ka == kb && a.ID == b.ID {
		return false
	}
	if rapid.Bool().Draw(t, "teams") {
		a.Team, b.Team = b.Team, a.Team
	} else {
		a.Seat, b.Seat = b.Seat, a.Seat
	}
	m.change(t, set(ka, a.ID, a.Team, a.Seat, a.N), set(kb, b.ID, b.Team, b.Seat, b.N))
	return true
}

func (m *machine) delete(t *rapid.T) {
	if len(m.source) == 0 {
		t.Skip("nobody is there")
	}
	key := rapid.SampledFrom(slices.Sorted(maps.Keys(m.source))).Draw(t, "who")
	d := m.source[key]
	m.change(t, del(key[:len(key)-len(d.ID)-1], d.ID))
}

// scatter deletes a whole team.
func (m *machine) scatter(t *rapid.T) {
	team := teamGen.Draw(t, "team")
	var ms []record.Mutation
	for _, key := range slices.Sorted(maps.Keys(m.source)) {
		if d := m.source[key]; d.Team == team {
			ms = append(ms, del(key[:len(key)-len(d.ID)-1], d.ID))
		}
	}
	if len(ms) == 0 {
		t.Skip("nobody is in it")
	}
	m.change(t, ms...)
}

// read has an applier take some units and find out what they come to, at a snapshot that
// may be older than the newest changes, though not than theirs.
func (m *machine) read(t *rapid.T) {
	m.w.t = t
	if len(m.pending) == 0 {
		t.Skip("nothing is pending")
	}
	n := rapid.IntRange(1, min(4, len(m.pending))).Draw(t, "units")
	var taken []event
	for range n {
		i := rapid.IntRange(0, len(m.pending)-1).Draw(t, "unit")
		taken = append(taken, m.pending[i])
		m.pending = slices.Delete(m.pending, i, i+1)
	}
	m.w.between = func() record.Version { m.interrupt(t); return record.Version{} }
	cs := m.resolve(taken)
	m.w.between = nil
	m.held = append(m.held, heldBatch{events: taken, cs: cs})
}

// interrupt has others go on while an applier is between two of its readings.
func (m *machine) interrupt(t *rapid.T) {
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2, 4}).Draw(t, "meanwhile") {
		switch n := len(m.pending); rapid.SampledFrom([]string{"put", "put", "swap", "delete", "bring", "bring", "bring", "write"}).Draw(t, "what") {
		case "put":
			m.put(t)
		case "swap":
			if len(m.source) > 0 {
				m.exchange(t)
			}
		case "delete":
			if len(m.source) > 0 {
				m.delete(t)
			}
		case "bring":
			if n > 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "unit")
				e := m.pending[i]
				m.pending = slices.Delete(m.pending, i, i+1)
				m.w.bring(m.ctx, []transform.GroupID{e.id}, e.at)
			}
		case "write":
			if len(m.held) > 0 {
				m.writeHeld(t)
			}
		}
	}
}

func (m *machine) resolve(events []event) []transform.Component {
	var ids []transform.GroupID
	var notBefore record.Version
	for _, e := range events {
		if !slices.Contains(ids, e.id) {
			ids = append(ids, e.id)
		}
		if e.at.Compare(notBefore) > 0 {
			notBefore = e.at
		}
	}
	cs, _ := m.w.resolve(m.ctx, ids, notBefore, nil)
	return cs
}

// pick takes one of the batches that were read.
func (m *machine) pick(t *rapid.T) heldBatch {
	m.w.t = t
	if len(m.held) == 0 {
		t.Skip("nothing is held")
	}
	i := rapid.IntRange(0, len(m.held)-1).Draw(t, "batch")
	b := m.held[i]
	m.held = slices.Delete(m.held, i, i+1)
	return b
}

// writeHeld applies a batch, all of it or up to a component.
func (m *machine) writeHeld(t *rapid.T) {
	b := m.pick(t)
	n := rapid.IntRange(0, len(b.cs)).Draw(t, "components")
	again, _ := m.w.apply(m.ctx, b.cs[:n])
	if n < len(b.cs) {
		// The applier was killed: the next applier begins again.
		if !b.again {
			m.pending = append(m.pending, b.events...)
		}
		return
	}
	m.requeue(b.events, again)
}

func (m *machine) requeue(events []event, again []transform.GroupID) {
	var at record.Version
	for _, e := range events {
		if e.at.Compare(at) > 0 {
			at = e.at
		}
	}
	for _, id := range again {
		m.pending = append(m.pending, event{id, at})
	}
}

// crash loses a batch; its units are delivered again.
func (m *machine) crash(t *rapid.T) {
	if b := m.pick(t); !b.again {
		m.pending = append(m.pending, b.events...)
	}
}

// late has another owner given the units of a batch, which is written all the same, some
// time.
func (m *machine) late(t *rapid.T) {
	b := m.pick(t)
	if !b.again {
		m.pending = append(m.pending, b.events...)
		b.again = true
	}
	m.held = append(m.held, b)
}

// rest corrects the source, delivers everything, and looks.
func (m *machine) rest(t *rapid.T) {
	m.w.t = t
	seats := map[string]string{} // by seat, the team
	for _, key := range slices.Sorted(maps.Keys(m.source)) {
		d := m.source[key]
		kind := key[:len(key)-len(d.ID)-1]
		team := d.Team
		if kind == "teams1" {
			team = d.ID
		}
		if team == "" || d.N < 0 || seats[d.Seat] != "" {
			if rapid.Bool().Draw(t, "delete") {
				m.change(t, del(kind, d.ID))
				continue
			}
			d.Seat, d.N = "", 7
			if d.Team == "" && kind != "teams1" {
				d.Team = "green"
			}
			m.change(t, set(kind, d.ID, d.Team, d.Seat, d.N))
			continue
		}
		if d.Seat != "" {
			seats[d.Seat] = team
		}
	}
	for len(m.held) > 0 && rapid.Bool().Draw(t, "written at last") {
		m.writeHeld(t)
	}
	for _, b := range m.held {
		if !b.again {
			m.pending = append(m.pending, b.events...)
		}
	}
	pos, err := m.w.src.Position(m.ctx)
	if err != nil {
		t.Fatalf("position: %v", err)
	}
	// Late batches come in between, until the last.
	for len(m.pending) > 0 {
		e := m.pending[0]
		m.pending = m.pending[1:]
		m.w.bring(m.ctx, []transform.GroupID{e.id}, pos.At)
		if len(m.held) > 0 && m.held[0].again {
			_, _ = m.w.apply(m.ctx, m.held[0].cs) // its units have been given to others
			m.held = m.held[1:]
		}
	}
	for _, b := range m.held {
		_, _ = m.w.apply(m.ctx, b.cs)
	}
	for range 3 {
		m.w.bring(m.ctx, slices.Collect(maps.Keys(m.w.parked)), pos.At)
	}
	if len(m.w.parked) > 0 {
		t.Fatalf("parked: %s", fmt.Sprint(m.w.parked))
	}
	m.w.exact(m.ctx)
}
