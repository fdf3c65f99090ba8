package deployment

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// planPart bounds one value of a plan: etcd refuses requests of 1.5 MiB, and a plan of many
// kinds and shards comes to several.
const planPart = 256 << 10

// storedPlan is a plan as it is stored: small ones whole, and of larger ones the ranges in
// parts, which are there before the plan is. Of several that create a plan at a time each
// has parts of its own, and those of the others are removed with the direction.
//
// Ranges holds them for plans that are neither dealt nor in parts. For others it is a
// string, which earlier binaries cannot read: they would give ranges to other shards, or
// find none, and no one would copy what they leave out.
type storedPlan struct {
	Start  record.Position  `json:"start"`
	Ranges json.RawMessage  `json:"ranges"`
	Totals map[string]int64 `json:"totals"`
	InSync bool             `json:"level,omitempty"`
	Target record.Position  `json:"target,omitzero"`
	Dealt  planPiece        `json:"dealt,omitempty"`
	Parts  string           `json:"parts,omitempty"` // what the parts' keys have; empty: there are none
	Count  int              `json:"count,omitempty"`
}

// elsewhere stands for ranges that an earlier binary cannot use.
var elsewhere = json.RawMessage(`"see dealt and parts"`)

// planPiece is a value of some ranges of one kind or several.
type planPiece map[string][]record.Range

// storeParts stores the parts of a plan, if it needs any, and returns the value that makes
// them a plan.
func (s *Store) storeParts(ctx context.Context, dir syncer.DirectionKey, p syncer.Plan) ([]byte, error) {
	head := storedPlan{Start: p.Start, Ranges: elsewhere, Totals: p.Totals, InSync: p.InSync, Target: p.Target, Dealt: p.Ranges}
	if !p.Dealt {
		var err error
		if head.Ranges, err = json.Marshal(p.Ranges); err != nil {
			return nil, err
		}
		head.Dealt = nil
	}
	whole, err := json.Marshal(head)
	if err != nil || !p.Dealt || len(whole) <= planPart {
		return whole, err
	}
	head.Dealt, head.Parts = nil, rand.Text()
	piece, size := planPiece{}, 0
	flush := func() error {
		value, err := json.Marshal(piece)
		if err != nil {
			return err
		}
		if err := s.commitOwned(ctx, nil, []coord.Op{{Key: s.planPartKey(dir, head.Parts, head.Count), Value: value}}); err != nil {
			return err
		}
		head.Count++
		piece, size = planPiece{}, 0
		return nil
	}
	for _, kind := range slices.Sorted(maps.Keys(p.Ranges)) {
		if p.Ranges[kind] != nil {
			piece[kind] = []record.Range{} // one without ranges is no other than one that is not there
		}
		for _, r := range p.Ranges[kind] {
			const around = 30 // field names
			n := (len(r.From)+len(r.To))*4/3 + around
			if size > 0 && size+n > planPart {
				if err := flush(); err != nil {
					return nil, err
				}
			}
			if piece[kind] == nil {
				size += len(kind) + around
			}
			piece[kind] = append(piece[kind], r)
			size += n
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return json.Marshal(head)
}

// loadParts completes a plan by its parts.
func (s *Store) loadParts(ctx context.Context, dir syncer.DirectionKey, head storedPlan) (syncer.Plan, error) {
	p := syncer.Plan{Start: head.Start, Totals: head.Totals, InSync: head.InSync, Target: head.Target}
	if head.Parts == "" {
		if p.Dealt = len(head.Ranges) > 0 && head.Ranges[0] == '"'; p.Dealt {
			p.Ranges = head.Dealt
			return p, nil
		}
		if len(head.Ranges) == 0 {
			return p, nil
		}
		if err := json.Unmarshal(head.Ranges, &p.Ranges); err != nil {
			return p, fmt.Errorf("%w: %s: %w", ErrCorrupt, s.planKey(dir), err)
		}
		return p, nil
	}
	p.Dealt, p.Ranges = true, map[string][]record.Range{}
	for i := range head.Count {
		var piece planPiece
		key := s.planPartKey(dir, head.Parts, i)
		found, err := s.load(ctx, key, &piece)
		if err != nil {
			return syncer.Plan{}, err
		}
		if !found {
			return syncer.Plan{}, fmt.Errorf("%w: %s is missing", ErrCorrupt, key)
		}
		for kind, ranges := range piece {
			p.Ranges[kind] = append(p.Ranges[kind], ranges...)
		}
	}
	return p, nil
}
