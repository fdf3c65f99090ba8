package identity

import (
	"context"
	"math"
	"testing"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// forgedDB is a database whose mark and claims somebody else wrote.
type forgedDB struct {
	record.Marker
	mark   record.Mark
	claims []record.Claim
}

func (f *forgedDB) Identity(context.Context) (record.Identity, error) {
	return record.Identity{Cluster: "c", Database: "d"}, nil
}

func (f *forgedDB) Marks(context.Context) ([]record.Mark, error) { return []record.Mark{f.mark}, nil }

func (f *forgedDB) Claims(context.Context) ([]record.Claim, error) { return f.claims, nil }

func (f *forgedDB) PutMark(_ context.Context, m record.Mark) error {
	if m.Rev != f.mark.Rev {
		return record.ErrMismatch
	}
	m.Rev++
	f.mark = m
	return nil
}

// FuzzRecover: marks and claims that a login of the database wrote make a deployment that is valid,
// of this name, and later than all that the marks tell, or an error.
func FuzzRecover(f *testing.F) {
	const name = "services/a/deployments/b"
	d := upgradestate.New(name, "v1", 4)
	d.Namespaces = []upgradestate.Namespace{
		{Version: "v1", Location: "mongo:a", Kinds: []upgradestate.Kind{
			{Kind: "orders", Fixed: true, Physical: "orders", ID: "a1", Fence: string(record.FenceView), NextSeq: 2},
			{Kind: "users", Physical: "users.n1", ID: "a2", NextSeq: 2},
		}},
		{Version: "v2", Location: "mongo:b"},
	}
	whole, err := state(d)
	if err != nil {
		f.Fatal(err)
	}
	d.Name = "services/a/deployments/other"
	other, err := state(d)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, uint64(3), uint64(4), true, "v2", "orders.n1", "orders", "a1", "")
	f.Add(whole, uint64(3), uint64(0), true, "", "orders", "", "a1", "v1")
	f.Add(whole, uint64(math.MaxInt64), uint64(0), true, "", "users.n18446744073709551615", "", "a2", "")
	f.Add(other, uint64(3), uint64(0), true, "", "orders", "orders", "a1", "")
	f.Add(`{"format":1,"name":"services/a/deployments/b","ringSize":-1,"namespaces":[{"version":"v1"},{"version":"v1"}]}`, uint64(1), uint64(1), false, "v1", "", "", "", "v2")
	f.Fuzz(func(t *testing.T, text string, epoch, next uint64, current bool, to, place, bearer, id, choice string) {
		// v2 has a mark that a controller wrote.
		databases := map[string]record.Marker{}
		for version, m := range map[string]Mark{
			"v1": {Namespace: "n1", Epoch: epoch, Current: current, Next: &Next{ID: "u", Epoch: next, To: to}, State: text},
			"v2": {Namespace: "n2", Epoch: 1, State: whole},
		} {
			owner := record.Owner{Deployment: name, Version: version}
			mark, err := m.encode(owner)
			if err != nil {
				return // such as a number that BSON cannot hold
			}
			databases[version] = &forgedDB{mark: mark}
			if version == "v1" {
				databases[version] = &forgedDB{mark: mark, claims: []record.Claim{
					{Owner: owner, Kind: "orders", ID: id, Name: place, Fence: place, Bearer: bearer, Instead: bearer, InsteadName: to},
					{Owner: owner, Kind: "users", ID: "a2", Name: "users.n1"},
				}}
			}
		}
		e, err := Gather(t.Context(), name, databases)
		if err != nil {
			return
		}
		is, _, err := e.Current(choice)
		if err != nil {
			return
		}
		d, _, err := e.Rebuild(is)
		if err != nil {
			return
		}
		if err := upgradestate.Validate(d); err != nil {
			t.Errorf("the rebuilt deployment is not valid: %v", err)
		}
		if d.Name != name || d.CurrentVersion != is || d.Upgrade != nil || d.Available != nil || d.Update != nil || d.Retire != nil {
			t.Errorf("rebuilt %s at %s: %+v", name, is, d)
		}
		if d.Epoch <= max(epoch, next) || d.Epoch > implausible+1 {
			t.Errorf("rebuilt in epoch %d from the epochs %d and %d", d.Epoch, epoch, next)
		}
		for _, ns := range d.Namespaces {
			for _, k := range ns.Kinds {
				if k.NextSeq > implausible+seqMargin || k.Pending != nil && ns.Version != is {
					t.Errorf("%s: %+v", ns.Version, k)
				}
			}
		}
		_, _ = upgradestate.Actions(d), upgradestate.ReadyToSwitch(d)
		// The command goes on with these two.
		if err := Announce(t.Context(), d, "r", databases); err != nil {
			t.Errorf("announce: %v", err)
		}
		if err := Finalize(t.Context(), d, databases); err != nil {
			t.Errorf("finalize: %v", err)
		}
	})
}

type beats struct {
	b           Beat
	incarnation string
}

func (s *beats) LoadBeat(context.Context, string) (Beat, string, error) {
	return s.b, s.incarnation, nil
}

func (s *beats) SaveBeat(_ context.Context, _ string, b Beat) error {
	if b.Count > s.b.Count {
		s.b = b
	}
	return nil
}

func (s *beats) AdvanceBeat(_ context.Context, _, incarnation string, from, to Beat) (bool, error) {
	ok := s.b == from && s.incarnation == incarnation
	if ok {
		s.b = to
	}
	return ok, nil
}

// FuzzBeat: no beat that a login of the database wrote makes the count go back or overflow, and a
// refused one changes nothing until an operator accepts the database.
func FuzzBeat(f *testing.F) {
	owner := record.Owner{Deployment: "services/a/deployments/b", Version: "v1"}
	for _, b := range []storedBeat{
		{Format: 1, Beat: Beat{Count: 7, Nonce: "a"}, Incarnation: "i"},
		{Format: 1, Beat: Beat{Count: 6, Nonce: "a"}},
		{Format: 1, Beat: Beat{Count: math.MaxInt64}},
		{Format: 2, Beat: Beat{Count: 9}},
		{Format: 1, Beat: Beat{Count: 8, Nonce: "c"}, Incarnation: "another"},
	} {
		body, err := bson.Marshal(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(body), uint64(7), "a", "i")
	}
	f.Add([]byte{1, 2}, uint64(0), "", "")
	f.Fuzz(func(t *testing.T, body []byte, count uint64, nonce, incarnation string) {
		if !utf8.ValidString(incarnation) {
			return // a controller makes it
		}
		known := Beat{Count: count % implausible, Nonce: nonce} // only controllers write to the store
		db := &forgedDB{mark: record.Mark{Owner: BeatOwner(owner), Rev: 3, Body: body}}
		store := &beats{b: known, incarnation: incarnation}
		p := Pulse{Owner: owner, DB: db, Beats: store}
		look := p.Look(t.Context())
		has := p.last
		if look == nil && (has.Format > beatFormat || has.Count < known.Count || has.Count-known.Count > implausible) {
			t.Errorf("%+v is accepted after %+v", has, known)
		}
		if err := p.Beat(t.Context()); (err == nil) != (look == nil) {
			t.Errorf("a look says %v, and a beat %v", look, err)
		}
		if look != nil && (db.mark.Rev != 3 || store.b != known) {
			t.Errorf("%v, and the database has %+v, the store %+v", look, db.mark, store.b)
		}
		if look == nil && (store.b.Count != has.Count+1 || db.mark.Rev != 4) {
			t.Errorf("a beat after %d is %d", has.Count, store.b.Count)
		}
		// An operator accepts the database as it is.
		before := store.b.Count
		if err := p.Accept(t.Context()); err != nil {
			if has.Format <= beatFormat && look == nil {
				t.Errorf("accept: %v", err)
			}
			return
		}
		if store.b.Count <= before || store.b.Count > before+implausible+1 {
			t.Errorf("accepted beat %d after %d", store.b.Count, before)
		}
		if err := p.Look(t.Context()); err != nil {
			t.Errorf("after it was accepted: %v", err)
		}
	})
}
