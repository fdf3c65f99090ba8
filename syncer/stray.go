package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// straySpec marks the parked entry of a target record that belongs to no group. (-2 is
// OverflowSpec.)
const straySpec = -3

// parkStrays parks target records that the comparison found to belong to no group: nothing
// that is brought over replaces or removes them, and they must not go with the switch
// unseen.
func (e *Engine) parkStrays(ctx context.Context, strays []transform.Stray) error {
	for _, s := range strays {
		id := transform.GroupID{Spec: straySpec, Name: s.Kind + "\x00" + string(s.Key)}
		why := fmt.Errorf("it is in %s alone and is no record of this transformation (%w): remove it there, or waive it", e.Direction.To(), s.Err)
		if err := e.parkAs(ctx, id, s.Kind, s.Key.String(), record.Version{}, why); err != nil {
			return err
		}
	}
	return nil
}

// retryStrays unparks strays that are gone.
func (e *Engine) retryStrays(ctx context.Context, ids []transform.GroupID) error {
	if len(ids) == 0 {
		return nil
	}
	dst, err := e.targetTokens(ctx)
	if err != nil {
		return err
	}
	req := record.ReadRequest{Tokens: dst}
	for _, id := range ids {
		kind, key, _ := strings.Cut(id.Name, "\x00")
		req.Select = append(req.Select, record.Selector{Kind: kind, Key: record.Key(key)})
	}
	snap, err := e.Target.Read(ctx, req)
	if err != nil {
		return fmt.Errorf("read parked strays: %w", err)
	}
	for i, id := range ids {
		there := slices.ContainsFunc(snap.Records, func(r record.Record) bool {
			return r.Kind == req.Select[i].Kind && r.Key == req.Select[i].Key
		})
		if there {
			continue
		}
		if err := e.unpark(ctx, id, record.Version{}); err != nil {
			return err
		}
	}
	return nil
}
