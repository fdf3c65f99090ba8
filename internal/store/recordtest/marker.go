package recordtest

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

var markerTests = []test{
	{"an identity is made once", markerIdentity},
	{"a mark is written over the one that was read", markerPut},
	{"of several writers of a mark one wins", markerPutOne},
	{"a collection has one owner", markerClaim},
	{"of several who claim a collection one wins", markerClaimOne},
	{"a claim follows renames, and goes with the collection", markerClaimMoves},
	{"release", markerRelease},
}

func markerIdentity(t *testing.T, b *bench) {
	before, err := b.Namespace.Identity(t.Context())
	ok(t, "identity", err)
	if before.Database != "" {
		t.Errorf("a database that was never identified has the identity %q", before.Database)
	}
	// Concurrent calls must all get the identity that was stored.
	made := make([]record.Identity, 4)
	var g errgroup.Group
	for i := range made {
		g.Go(func() (err error) { made[i], err = b.Namespace.Identify(t.Context()); return err })
	}
	ok(t, "identify", g.Wait())
	// Another process must read the same identity.
	again := b.Namespace
	if b.Reopen != nil {
		again = b.Reopen()
	}
	has, err := again.Identity(t.Context())
	ok(t, "identity", err)
	for _, m := range append(made, has) {
		if m.Database == "" || m != made[0] {
			t.Errorf("identities %v and %v", made[0], m)
		}
	}
}

// owner returns the owner of one of several deployments in one database.
func owner(deployment string) record.Owner {
	return record.Owner{Deployment: deployment, Version: "v1"}
}

func body(t *testing.T, n int) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(bson.D{{Key: "n", Value: n}})
	ok(t, "marshal", err)
	return raw
}

func (b *bench) mark(t *testing.T, o record.Owner) record.Mark {
	t.Helper()
	all, err := b.Namespace.Marks(t.Context())
	ok(t, "marks", err)
	i := slices.IndexFunc(all, func(m record.Mark) bool { return m.Owner == o })
	if i < 0 {
		return record.Mark{Owner: o}
	}
	return all[i]
}

func markerPut(t *testing.T, b *bench) {
	o, other := owner("services/a/deployments/put"), owner("services/a/deployments/put/")
	put := func(o record.Owner, rev int64, n int) error {
		return b.Namespace.PutMark(t.Context(), record.Mark{Owner: o, Rev: rev, Body: body(t, n)})
	}
	ok(t, "first", put(o, 0, 1))
	// Owners with similar names must not share a mark.
	ok(t, "another's", put(other, 0, 7))
	wantError(t, "first again", put(o, 0, 2), record.ErrMismatch)
	read := b.mark(t, o)
	if read.Rev != 1 || read.Body.Lookup("n").AsInt64() != 1 {
		t.Errorf("mark is %+v", read)
	}
	ok(t, "second", put(o, read.Rev, 2))
	wantError(t, "late", put(o, read.Rev, 3), record.ErrMismatch)
	if read = b.mark(t, o); read.Rev != 2 || read.Body.Lookup("n").AsInt64() != 2 {
		t.Errorf("mark is %+v", read)
	}
	// A restored database counts its revisions again, under other bodies.
	wantError(t, "on another body", b.Namespace.PutMark(t.Context(), record.Mark{Owner: o, Rev: 2, Body: body(t, 4), Was: body(t, 1)}), record.ErrMismatch)
	ok(t, "on the stored body", b.Namespace.PutMark(t.Context(), record.Mark{Owner: o, Rev: 2, Body: body(t, 5), Was: read.Body}))
	if read = b.mark(t, o); read.Rev != 3 || read.Body.Lookup("n").AsInt64() != 5 || read.Was != nil {
		t.Errorf("mark is %+v", read)
	}
	if m := b.mark(t, other); m.Body.Lookup("n").AsInt64() != 7 {
		t.Errorf("the other's mark is %+v", m)
	}
}

func markerPutOne(t *testing.T, b *bench) {
	o := owner("services/a/deployments/race")
	for round := range 5 {
		var won atomic.Int32
		var g errgroup.Group
		for i := range 6 {
			g.Go(func() error {
				err := b.Namespace.PutMark(t.Context(), record.Mark{Owner: o, Rev: int64(round), Body: body(t, i)})
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, record.ErrMismatch) {
					return err
				}
				return nil
			})
		}
		ok(t, "put", g.Wait())
		if won.Load() != 1 {
			t.Fatalf("round %d: %d writers won", round, won.Load())
		}
	}
}

// claimed returns the claim of a kind, or the zero Claim if there is none.
func (k *kind) claimed(t *testing.T) record.Claim {
	t.Helper()
	all, err := k.b.Namespace.Claims(t.Context())
	ok(t, "claims", err)
	for _, c := range all {
		if c.Kind == k.spec.Name {
			return c
		}
	}
	return record.Claim{}
}

func wantOwned(t *testing.T, what string, err error, by record.Owner) {
	t.Helper()
	var owned *record.OwnedError
	if !errors.As(err, &owned) || owned.Owner != by {
		t.Errorf("%s: %v, want refused for %s", what, err, by)
	}
}

func markerClaim(t *testing.T, b *bench) {
	mine, other := owner("services/a/deployments/x"), owner("services/a/deployments/y")
	second := record.Owner{Deployment: mine.Deployment, Version: "v2"}
	k, l := b.managed(t), b.managed(t)
	for range 2 {
		ok(t, "claim", b.Namespace.Claim(t.Context(), k.tok, mine))
	}
	// A kind has one owner, which is a deployment and a version.
	wantOwned(t, "another deployment", b.Namespace.Claim(t.Context(), k.tok, other), mine)
	wantOwned(t, "another version", b.Namespace.Claim(t.Context(), k.tok, second), mine)
	if k.tok.ID != "" {
		// The same collection must not be claimed under another kind.
		renamed := k.tok
		renamed.Kind = l.spec.Name
		wantOwned(t, "under another kind", b.Namespace.Claim(t.Context(), renamed, other), mine)
	}
	ok(t, "another kind of another deployment", b.Namespace.Claim(t.Context(), l.tok, other))
	if c := k.claimed(t); c.Owner != mine || c.ID != k.tok.ID || c.ID != "" && c.Name != k.tok.Name {
		t.Errorf("claim of %+v is %+v", k.tok, c)
	}
	if c := l.claimed(t); c.Owner != other {
		t.Errorf("claim of %+v is %+v", l.tok, c)
	}
}

func markerClaimOne(t *testing.T, b *bench) {
	for range 3 {
		k := b.managed(t)
		var won atomic.Int32
		var g errgroup.Group
		for i := range 5 {
			g.Go(func() error {
				err := b.Namespace.Claim(t.Context(), k.tok, owner("services/a/deployments/"+string(rune('a'+i))))
				var owned *record.OwnedError
				if err == nil {
					won.Add(1)
				} else if !errors.As(err, &owned) {
					return err
				}
				return nil
			})
		}
		ok(t, "claim", g.Wait())
		if won.Load() != 1 {
			t.Errorf("%d won", won.Load())
		}
	}
}

func markerClaimMoves(t *testing.T, b *bench) {
	mine, other := owner("services/a/deployments/m"), owner("services/a/deployments/n")
	k := b.managed(t)
	if k.tok.ID == "" {
		t.Log("left out: collections have no identity here")
		return
	}
	ok(t, "claim", b.Namespace.Claim(t.Context(), k.tok, mine))
	stranger := k.tok
	k.fence(t)
	if c := k.claimed(t); c.Name != k.tok.Name {
		t.Errorf("after a rename to %s the claim is %+v", k.tok.Name, c)
	}
	// While the first collection exists, another collection of the kind cannot be claimed.
	again, err := b.Namespace.Provision(t.Context(), k.spec, stranger.Name)
	ok(t, "provision", err)
	wantOwned(t, "another collection of the kind", b.Namespace.Claim(t.Context(), again, mine), mine)
	ok(t, "drop the other", b.Namespace.Drop(t.Context(), again))
	if c := k.claimed(t); c.ID != k.tok.ID {
		t.Errorf("the claim went with another collection: %+v", c)
	}
	// The claim must end with its own collection, and only then.
	ok(t, "drop", b.Namespace.Drop(t.Context(), k.tok))
	if c := k.claimed(t); c.Kind != "" {
		t.Errorf("claim of what is dropped: %+v", c)
	}
	k.tok, err = b.Namespace.Provision(t.Context(), k.spec, stranger.Name)
	ok(t, "provision", err)
	ok(t, "claim by another", b.Namespace.Claim(t.Context(), k.tok, other))
}

func markerRelease(t *testing.T, b *bench) {
	mine, other := owner("services/a/deployments/r"), owner("services/a/deployments/s")
	k, l := b.managed(t), b.managed(t)
	for _, o := range []record.Owner{mine, other} {
		ok(t, "mark", b.Namespace.PutMark(t.Context(), record.Mark{Owner: o, Body: body(t, 1)}))
	}
	ok(t, "claim", b.Namespace.Claim(t.Context(), k.tok, mine))
	ok(t, "claim", b.Namespace.Claim(t.Context(), l.tok, other))
	for range 2 {
		ok(t, "release", b.Namespace.Release(t.Context(), mine))
	}
	if b.mark(t, mine).Rev != 0 || k.claimed(t).Kind != "" {
		t.Error("something of the owner is left")
	}
	if b.mark(t, other).Rev != 1 || l.claimed(t).Owner != other {
		t.Error("something of another owner is gone")
	}
	ok(t, "claim by another", b.Namespace.Claim(t.Context(), k.tok, other))
}
