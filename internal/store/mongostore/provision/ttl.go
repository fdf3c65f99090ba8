package provision

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Expire sets the seconds of TTL indexes, by index name. It returns nil once a majority has the
// change and the indexes list it. A missing index is no error. The commands carry the token's UUID,
// so that a late one changes no other collection.
func (n *Collections) Expire(ctx context.Context, tok record.Token, seconds map[string]int64) error {
	err := n.UntilDone(ctx, "", func(ctx context.Context) error {
		for _, index := range slices.Sorted(maps.Keys(seconds)) {
			if err := n.expireIndex(ctx, tok, index, seconds[index]); err != nil {
				return err
			}
		}
		return n.confirmExpiry(ctx, tok, seconds)
	})
	if err != nil {
		return fmt.Errorf("change expiry in %s.%s: %w", n.Name, tok.Name, conn.WithPrivilege(err))
	}
	return nil
}

// expireIndex changes one index, even if it lists the seconds already. A deposed primary may be the
// only one with that list.
func (n *Collections) expireIndex(ctx context.Context, tok record.Token, index string, seconds int64) error {
	listed, err := n.ListIndexes(ctx, tok)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(listed, func(ix conn.ListedIndex) bool { return ix.Name == index })
	// The index is gone or has no expiry any more: nothing to change.
	if i < 0 || listed[i].Spec.Lookup("expireAfterSeconds").IsZero() {
		return nil
	}
	cmd, err := conn.WithUUID(bson.D{
		{Key: "collMod", Value: tok.Name},
		{Key: "index", Value: bson.D{{Key: "name", Value: index}, {Key: "expireAfterSeconds", Value: seconds}}},
	}, tok)
	if err != nil {
		return conn.Permanent(err)
	}
	return reshaped(n.Change(ctx, n.DB, cmd))
}

func (n *Collections) confirmExpiry(ctx context.Context, tok record.Token, seconds map[string]int64) error {
	listed, err := n.ListIndexes(ctx, tok)
	if err != nil {
		return err
	}
	for _, ix := range listed {
		want, asked := seconds[ix.Name]
		have, isTTL := ix.Spec.Lookup("expireAfterSeconds").AsInt64OK()
		if asked && isTTL && have != want {
			return fmt.Errorf("index %s deletes after %d s, not yet %d: %w", ix.Name, have, want, conn.ErrAgain)
		}
	}
	return nil
}
