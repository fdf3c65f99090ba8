package provision

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
)

// Sweep drops every collection and view whose name begins with a prefix, and this package's
// collections and notes for them. They are scratch collections of a caller that may have died,
// without application data. The prefix must begin with "dbc_" and must not match other collections
// of this package.
func (n *Collections) Sweep(ctx context.Context, prefix string) error {
	err := n.UntilDone(ctx, "", func(ctx context.Context) error { return n.sweep(ctx, prefix) })
	if err != nil {
		return fmt.Errorf("sweep %s.%s*: %w", n.Name, prefix, err)
	}
	return nil
}

// Names returns the names of the collections and views that begin with a prefix.
func (n *Collections) Names(ctx context.Context, prefix string) ([]string, error) {
	found, err := n.List(ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: "^" + regexp.QuoteMeta(prefix)}}})
	if err != nil {
		return nil, conn.Classify("names of collections", err)
	}
	names := make([]string, 0, len(found))
	for _, c := range found {
		names = append(names, c.Name)
	}
	return names, nil
}

// sweepsAtOnce bounds concurrent drops. Each drop waits for a majority, and many wait as long as
// one.
const sweepsAtOnce = 16

// sweepable begins the names of all scratch collections.
const sweepable = "dbc_"

func (n *Collections) sweep(ctx context.Context, prefix string) error {
	// A caller that lost part of its prefix must not drop what kinds need.
	if !strings.HasPrefix(prefix, sweepable) || slices.ContainsFunc(ours, func(o string) bool {
		return strings.HasPrefix(o, prefix) || strings.HasPrefix(prefix, o)
	}) {
		return conn.Permanent(fmt.Errorf("names that begin with %q are not those of scratch collections", prefix))
	}
	quoted := regexp.QuoteMeta(prefix)
	kept := bson.A{}
	// The kinds' own side collections and gates have the prefix after their own.
	for _, p := range []string{"", conn.GuardsName(""), conn.GatePrefix} {
		kept = append(kept, bson.Regex{Pattern: "^" + regexp.QuoteMeta(p) + quoted})
	}
	found, err := n.List(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: kept}}}})
	if err != nil {
		return err
	}
	notes := bson.A{}
	// Each pass may fail halfway; a repeated sweep finds the rest.
	for _, views := range []bool{true, false} { // views first, since they read other collections
		var g errgroup.Group
		g.SetLimit(sweepsAtOnce)
		for _, c := range found {
			if (c.Type == "view") != views {
				continue
			}
			g.Go(func() error { return n.DropNamed(ctx, c.Name) })
			if !views {
				notes = append(notes, conn.NoteProvisioned+c.ID(), conn.NoteRestore+c.ID())
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	// Forget them before the next Apply, which must create them again.
	n.ForgetSides(prefix)
	either := bson.A{bson.D{{Key: "_id", Value: bson.Regex{Pattern: "^(" + regexp.QuoteMeta(conn.UnfencedNotes) + ")?" + quoted}}}}
	if len(notes) > 0 {
		either = append(either, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: notes}}}})
	}
	return n.DeleteMarks(ctx, bson.D{{Key: "$or", Value: either}})
}
