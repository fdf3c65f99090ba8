package deployment

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// planPart bounds one value of a plan. etcd refuses requests above 1.5 MiB, and a plan for many
// kinds and shards takes several.
const planPart = 256 << 10

// storedPlan is the stored form of a plan. A small plan is one value. A larger one has its ranges
// in parts, which are stored before the plan. If several processes create a plan at the same time,
// each has its own parts. The parts of the losers are deleted with the direction.
//
// Ranges holds the ranges of plans that are neither dealt nor in parts. For other plans it is a
// string, which earlier binaries cannot read. Those binaries would give ranges to other shards or
// find none, and nobody would copy the rest.
type storedPlan struct {
	Start  record.Position             `json:"start"`
	Ranges json.RawMessage             `json:"ranges"`
	Totals map[string]int64            `json:"totals"`
	InSync bool                        `json:"level,omitempty"`
	Target record.Position             `json:"target,omitzero"`
	Fences map[string]syncer.SeenFence `json:"fences,omitempty"`
	Dealt  planPiece                   `json:"dealt,omitempty"`
	Parts  string                      `json:"parts,omitempty"` // random part of the parts' keys; empty: no parts
	Count  int                         `json:"count,omitempty"`
}

// elsewhere replaces ranges that an earlier binary must not use.
var elsewhere = json.RawMessage(`"see dealt and parts"`)

// planPiece is a value with ranges of one or more kinds.
type planPiece map[string][]record.Range

// storeParts stores the parts of a plan if it needs any. It returns the value of the plan itself.
func (s *Store) storeParts(ctx context.Context, dir syncer.DirectionKey, p syncer.Plan) ([]byte, error) {
	head := storedPlan{Start: p.Start, Ranges: elsewhere, Totals: p.Totals, InSync: p.InSync, Target: p.Target, Fences: p.Fences, Dealt: p.Ranges}
	// Earlier binaries deal ranges to shards in their own way, and can use plain plans only.
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
	// A random name keeps parts of concurrent plans apart.
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
			piece[kind] = []record.Range{} // a kind without ranges is like a missing kind
		}
		for _, r := range p.Ranges[kind] {
			const around = 30 // field names
			// JSON encodes the keys in base64, which takes a third more.
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
	// The last part goes before the plan, so that a stored plan is always complete.
	if err := flush(); err != nil {
		return nil, err
	}
	return json.Marshal(head)
}

// loadParts adds the parts to a plan.
func (s *Store) loadParts(ctx context.Context, dir syncer.DirectionKey, head storedPlan) (syncer.Plan, error) {
	p := syncer.Plan{Start: head.Start, Totals: head.Totals, InSync: head.InSync, Target: head.Target, Fences: head.Fences}
	if head.Parts == "" {
		// A string in place of the ranges marks a dealt plan.
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
	// A plan in no part at all would have no ranges, and nothing would be copied.
	if head.Count < 1 {
		return syncer.Plan{}, fmt.Errorf("%w: %s is in %d parts", ErrCorrupt, s.planKey(dir), head.Count)
	}
	p.Dealt, p.Ranges = true, map[string][]record.Range{}
	for i := range head.Count {
		var piece planPiece
		key := s.planPartKey(dir, head.Parts, i)
		found, err := s.load(ctx, key, &piece)
		if err != nil {
			return syncer.Plan{}, err
		}
		// A plan without a part would leave records uncopied, so do not use it.
		if !found {
			return syncer.Plan{}, fmt.Errorf("%w: %s is missing", ErrCorrupt, key)
		}
		for kind, ranges := range piece {
			p.Ranges[kind] = append(p.Ranges[kind], ranges...)
		}
	}
	return p, nil
}
