package fences_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// viewFences are fences of fixed-name kinds, to names with a seq.
func viewFences(t *testing.T, b *storetest.Bench, count, seq int) (fs []record.Fence) {
	t.Helper()
	for i := range count {
		tok := b.Fixed(t, fmt.Sprintf("orders%d", i))
		fs = append(fs, record.Fence{Class: record.FenceView, Token: tok, To: record.PhysicalName(tok.Name, uint64(seq))}) //nolint:gosec // small
	}
	return fs
}

func gatesOf(t *testing.T, b *storetest.Bench, fs []record.Fence) (found int) {
	t.Helper()
	for _, f := range fs {
		gate, err := b.CollectionNamed(t.Context(), fences.GateOf(f.To))
		if err != nil {
			t.Fatal(err)
		}
		if gate != nil {
			found++
		}
	}
	return found
}

// TestReadyFences: gates are made ahead, while applications write; fences that find them make
// none, and leave none. What is not used is taken back, and can be made again.
func TestReadyFences(t *testing.T) {
	b := storetest.NewBench(t)
	fs := viewFences(t, b, 2*fences.ReadyAtOnce+1, 1)
	moved := record.Fence{Class: record.FenceUUID, Token: b.Managed(t, record.Shape{}), To: "things.n2"}
	for range 2 {
		if err := b.Ready(t.Context(), append(fs, moved)); err != nil {
			t.Fatal(err)
		}
	}
	if found := gatesOf(t, b, fs); found != len(fs) {
		t.Fatalf("%d gates, want %d", found, len(fs))
	}
	if found := gatesOf(t, b, []record.Fence{moved}); found != 0 {
		t.Fatal("a fence that has no gate got one")
	}
	for range 2 {
		if err := b.Unready(t.Context(), fs); err != nil {
			t.Fatal(err)
		}
	}
	if found := gatesOf(t, b, fs); found != 0 {
		t.Fatalf("%d gates are left", found)
	}
	if err := b.Ready(t.Context(), fs); err != nil {
		t.Fatal(err)
	}
	for _, f := range fs {
		if _, err := b.Raw.Collection(f.Token.Name).InsertOne(t.Context(), bson.D{}); err != nil {
			t.Fatalf("the application's insert: %v", err)
		}
	}
	b.GateRounds().Do = func(context.Context, []record.Fence) (struct{}, error) {
		return struct{}{}, conn.Permanent(errors.New("a gate is made while writes are held"))
	}
	for _, f := range fs {
		if err := b.Fence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Raw.Collection(f.Token.Name).InsertOne(t.Context(), bson.D{}); !conn.HasCode(err, conn.CodeViewWrite) {
			t.Fatalf("the application's insert behind the fence: %v", err)
		}
	}
	if found := gatesOf(t, b, fs); found != 0 {
		t.Fatalf("%d gates are left", found)
	}
}

// TestReadyComesLate: a fence that has ended is not made ready again by one who slept, so that
// a command of it that comes later still finds no gate.
func TestReadyComesLate(t *testing.T) {
	b := storetest.NewBench(t)
	fs := viewFences(t, b, 2, 1)
	if err := b.Unfence(t.Context(), fs[1]); err != nil {
		t.Fatal(err)
	}
	if err := b.Ready(t.Context(), fs); !errors.Is(err, conn.ErrUnfenced) {
		t.Fatalf("ready for a fence that has ended: %v", err)
	}
	if found := gatesOf(t, b, fs[1:]); found != 0 {
		t.Fatal("the gate of a fence that has ended is there")
	}
	if _, err := b.ThroughGate(t.Context(), fs[1]); !conn.HasCode(err, conn.CodeNamespaceNotFound) {
		t.Fatalf("late fence: %v", err)
	}
}

// TestNamesProvedTogether: one command says for each collection whether it has its name.
func TestNamesProvedTogether(t *testing.T) {
	b := storetest.NewBench(t)
	var cs []fences.Identified
	for _, f := range viewFences(t, b, 5, 1) {
		uuid, err := conn.CollectionUUID(f.Token.ID)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, fences.Identified{f.Token.Name, uuid})
	}
	cs[1].UUID = cs[2].UUID
	cs[3].Name = "missing"
	for name, prove := range map[string]func(context.Context, []fences.Identified) (map[string]error, error){
		"together": b.ProveTogether,
		"any":      b.ProveNames,
		"each": func(ctx context.Context, cs []fences.Identified) (map[string]error, error) {
			return b.ProveEach(ctx, cs), nil
		},
	} {
		by, err := prove(t.Context(), cs)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, c := range cs {
			wrong := i == 1 || i == 3
			if err := by[c.Name]; wrong != conn.HasCode(err, conn.CodeUUIDMismatch, conn.CodeNamespaceNotFound) || !wrong && err != nil {
				t.Errorf("%s: %s: %v", name, c.Name, err)
			}
		}
	}
}

// TestProofWaitsForAMajority: a name that only the primary knows is not proved by one command for
// several collections either.
func TestProofWaitsForAMajority(t *testing.T) {
	r := storetest.NewReplicas(t)
	var cs []fences.Identified
	for _, f := range viewFences(t, r.Bench, 2, 1) {
		uuid, err := conn.CollectionUUID(f.Token.ID)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, fences.Identified{f.To, uuid})
	}
	primary := r.Primary(t, -1)
	r.Replication(t, primary, false)
	for _, c := range cs {
		from, _, _ := record.KindOfPhysical(c.Name)
		err := r.Direct[primary].Admin().RunCommand(t.Context(), bson.D{
			{Key: "renameCollection", Value: "app." + from}, {Key: "to", Value: "app." + c.Name},
			{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}},
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	by, err := r.ProveTogether(ctx, cs)
	cancel()
	if err == nil {
		t.Fatalf("proved by one node: %v", by)
	}
	r.Replication(t, primary, true)
	by, err = r.ProveTogether(t.Context(), cs)
	if err != nil || by[cs[0].Name] != nil || by[cs[1].Name] != nil {
		t.Fatalf("proved by all: %v, %v", by, err)
	}
}
