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

// Expire sets the seconds of TTL indexes, by index name. It returns a nil error once a majority has
// the change and the indexes list it. A missing index is no error. The commands carry the token's
// UUID, so that a late one changes no other collection. The result holds the seconds before.
func (n *Collections) Expire(ctx context.Context, tok record.Token, seconds map[string]int64) (map[string]int64, error) {
	had := map[string]int64{}
	err := n.UntilDone(ctx, "", func(ctx context.Context) error {
		for _, index := range slices.Sorted(maps.Keys(seconds)) {
			if err := n.expireIndex(ctx, tok, index, seconds[index], had); err != nil {
				return err
			}
		}
		return n.confirmExpiry(ctx, tok, seconds)
	})
	if err != nil {
		return had, fmt.Errorf("change expiry in %s.%s: %w", n.Name, tok.Name, conn.WithPrivilege(err))
	}
	return had, nil
}

// expireIndex changes one index, even if it lists the seconds already. A deposed primary may be the
// only one with that list. It notes in had what the index had before.
func (n *Collections) expireIndex(ctx context.Context, tok record.Token, index string, seconds int64, had map[string]int64) error {
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
	reply, err := n.ChangeReply(ctx, n.DB, cmd)
	if before, changed := expiryBefore(reply); changed {
		had[index] = before
	} else if _, known := had[index]; !known && err == nil {
		had[index] = seconds
	}
	return reshaped(err)
}

// expiryBefore returns the seconds that an index had before a collMod, from the command's reply.
// changed is false if the reply names none, because the index had the new seconds already.
func expiryBefore(reply bson.Raw) (seconds int64, changed bool) {
	const field = "expireAfterSeconds_old"
	if seconds, changed = reply.Lookup(field).AsInt64OK(); changed {
		return seconds, true
	}
	// A router returns the reply of each shard.
	shards, _ := reply.Lookup("raw").DocumentOK()
	of, _ := shards.Elements()
	for _, shard := range of {
		if doc, ok := shard.Value().DocumentOK(); ok {
			if seconds, changed = doc.Lookup(field).AsInt64OK(); changed {
				return seconds, true
			}
		}
	}
	return 0, false
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
