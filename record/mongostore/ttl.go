package mongostore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// codeIndexNotFound answers a collMod for an index that is gone.
const codeIndexNotFound = 27

// Expire changes the TTL indexes of a collection and returns nil once a majority has the
// change and the indexes are listed with it. The command carries the identity of the
// token, so that one that was sent long ago meets no other collection.
func (n *Namespace) Expire(ctx context.Context, tok record.Token, seconds map[string]int64) error {
	err := n.untilDone(ctx, "", func(ctx context.Context) error {
		for _, index := range slices.Sorted(maps.Keys(seconds)) {
			if err := n.expireIndex(ctx, tok, index, seconds[index]); err != nil {
				return err
			}
		}
		return n.confirmExpiry(ctx, tok, seconds)
	})
	if err != nil {
		return fmt.Errorf("change expiry in %s.%s: %w", n.name, tok.Name, withPrivilege(err))
	}
	return nil
}

// expireIndex changes one index, also one that has the seconds already: a primary that was
// deposed may be the only one to list it so.
func (n *Namespace) expireIndex(ctx context.Context, tok record.Token, index string, seconds int64) error {
	listed, err := n.listIndexes(ctx, tok)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(listed, func(ix listedIndex) bool { return ix.name == index })
	if i < 0 || listed[i].spec.Lookup("expireAfterSeconds").IsZero() {
		return nil
	}
	cmd, err := withUUID(bson.D{
		{Key: "collMod", Value: tok.Name},
		{Key: "index", Value: bson.D{{Key: "name", Value: index}, {Key: "expireAfterSeconds", Value: seconds}}},
	}, tok)
	if err != nil {
		return permanent(err)
	}
	return reshaped(n.change(ctx, n.db, cmd))
}

func (n *Namespace) confirmExpiry(ctx context.Context, tok record.Token, seconds map[string]int64) error {
	listed, err := n.listIndexes(ctx, tok)
	if err != nil {
		return err
	}
	for _, ix := range listed {
		want, asked := seconds[ix.name]
		have, isTTL := ix.spec.Lookup("expireAfterSeconds").AsInt64OK()
		if asked && isTTL && have != want {
			return fmt.Errorf("index %s deletes after %d s, not yet %d: %w", ix.name, have, want, errAgain)
		}
	}
	return nil
}
