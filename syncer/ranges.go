package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
)

const (
	// rangesPerShard is the number of ranges of a kind per shard. Databases estimate where to cut,
	// and sizes of ranges differ several times. With one range per shard most workers would be idle
	// while the last ones read the largest ranges.
	rangesPerShard = 4
	// maxRanges bounds the ranges of a plan, and thereby the sizes of the plan and of checkpoints
	// for any number of kinds and shards. Above it a kind has fewer ranges than there are shards,
	// but at least one.
	maxRanges = 16 << 10
)

// splitters is the number of kinds read in parallel. A database answers each at once, but hundreds
// of kinds in sequence take minutes.
const splitters = 8

// cut fills a plan with the ranges of kinds. It also fills the totals if plan.Totals is not nil.
func (e *Engine) cut(ctx context.Context, plan *Plan, db record.Namespace, toks record.Tokens, kinds []record.KindSpec) error {
	type piece struct {
		ranges []record.Range
		total  int64
	}
	pieces := make([]piece, len(kinds))
	most := max(1, min(rangesPerShard*e.cfg.Ring, maxRanges/max(1, len(kinds))))
	err := together(ctx, kinds, func(ctx context.Context, i int, k record.KindSpec) error {
		var err error
		if pieces[i].ranges, err = db.Split(ctx, toks[k.Name], most); err != nil {
			return fmt.Errorf("split %s: %w", k.Name, err)
		}
		if plan.Totals == nil {
			return nil
		}
		size, err := db.Size(ctx, toks[k.Name])
		pieces[i].total = size.Records
		e.expect(k.Name, size)
		return err
	})
	if err != nil {
		return err
	}
	// Plans of earlier binaries lack the mark, and their ranges stay where they were.
	plan.Dealt = true
	for i, k := range kinds {
		plan.Ranges[k.Name] = pieces[i].ranges
		if plan.Totals != nil {
			plan.Totals[k.Name] = pieces[i].total
		}
	}
	return nil
}

// first returns the shard of a kind's first range. Further ranges go to the following shards. Kinds
// start at different shards. Otherwise all kinds with a single range would belong to one shard.
func (p Plan) first(kind string, ring int) int {
	if !p.Dealt {
		return 0
	}
	return shards.Of(kind, ring)
}

// shardOf returns the shard that copies range i of a kind.
func (p Plan) shardOf(kind string, i, ring int) int { return (p.first(kind, ring) + i) % ring }

// part calls do for each range of a shard, ordered by kind and index. Checkpoint.DoneBits depends
// on this order.
func (p Plan) part(shard, ring int, do func(kind string, i int, r record.Range)) {
	for _, kind := range slices.Sorted(maps.Keys(p.Ranges)) {
		ranges := p.Ranges[kind]
		for i := (shard - p.first(kind, ring) + ring) % ring; i < len(ranges); i += ring {
			do(kind, i, ranges[i])
		}
	}
}

// names returns the range names of a shard, in the order of part.
func (p Plan) names(shard, ring int) []string {
	var names []string
	p.part(shard, ring, func(kind string, i int, _ record.Range) { names = append(names, rangeName(kind, i)) })
	return names
}

// setDone sets DoneBits: one bit per name, set for each completely copied range.
func (c *Checkpoint) setDone(names []string, done map[string]bool) {
	if len(done) == 0 {
		return
	}
	c.DoneBits = make([]byte, (len(names)+7)/8)
	for i, name := range names {
		if done[name] {
			c.DoneBits[i/8] |= 1 << (i % 8)
		}
	}
}

// done returns the completely copied ranges.
func (c Checkpoint) done(names []string) map[string]bool {
	done := map[string]bool{}
	// Written by earlier binaries only.
	for _, name := range c.Done {
		done[name] = true
	}
	for i, name := range names {
		if i/8 < len(c.DoneBits) && c.DoneBits[i/8]&(1<<(i%8)) != 0 {
			done[name] = true
		}
	}
	return done
}

// size returns the approximate bytes of a checkpoint in the coordination store, with its key.
func (c Checkpoint) size() int {
	const head = 300 // key and field names
	n := head + len(c.Repair) + len(c.Position.Token) + len(c.Target.Token) + len(c.DoneBits)*4/3
	for name, r := range c.Copied {
		n += len(name) + (len(r.From)+len(r.To))*4/3 + 30
	}
	for _, markers := range []map[string]string{c.Markers, c.LeftMarkers} {
		for kind, marker := range markers {
			n += len(kind) + len(marker) + 6
		}
	}
	return n
}
