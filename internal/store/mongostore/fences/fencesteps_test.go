package fences_test

import (
	"fmt"
	"testing"
	"time"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestStepsOfFarFences: while clients wait, each step costs the distance to the server. A switch seals a
// hidden collection in three steps. The first looks at the names, and a moment later for index builds.
// The second renames, and the third is the mark with the proof. The opening under its own name takes
// four: the former fence is closed in the first two, and index builds are looked for in the second.
func TestStepsOfFarFences(t *testing.T) {
	const wantSealed, wantOpened = 3, 4
	b := storetest.NewBench(t)
	var sealed, opened int
	// A busy machine sends late, and so in another step. Longer steps forgive that.
	for i, length := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
		tok := b.Fixed(t, fmt.Sprintf("orders%d", i))
		former := record.Fence{Class: record.FenceView, Token: tok, To: record.PhysicalName(tok.Kind, 1)}
		if err := b.Fence(t.Context(), former); err != nil {
			t.Fatal(err)
		}
		far := &storetest.Steps{Length: length}
		ns := storetest.OpenNamespace(t, conn.Config{URI: b.URI, Database: b.Name}, far)
		seal := record.Fence{Class: record.FenceView, Token: tok, To: record.PhysicalName(tok.Kind, 2)}
		seal.Token.Name = former.To
		sealed = far.Of(t, func() error { return ns.Fence(t.Context(), seal) })
		open := record.Fence{Class: record.FenceView, Token: tok, To: tok.Kind, Ends: former.To}
		open.Token.Name = seal.To
		opened = far.Of(t, func() error { return ns.Fence(t.Context(), open) })
		if sealed <= wantSealed && opened <= wantOpened {
			return
		}
	}
	t.Errorf("the seal took %d steps and the opening %d, want %d and %d", sealed, opened, wantSealed, wantOpened)
}
