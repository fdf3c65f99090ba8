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
	// rangesPerShard is how many ranges a kind has for each shard. Databases estimate where to
	// cut, and ranges differ by several times in size: with one each, most workers stand idle
	// while the last ones read the largest.
	rangesPerShard = 4
	// maxRanges bounds the ranges of a plan, and with it its size and that of checkpoints,
	// whatever the number of kinds and shards. A kind has fewer ranges then than there are
	// shards, and never less than one.
	maxRanges = 16 << 10
)

// splitters is how many kinds are read together: a database answers each at once, and
// one after the other hundreds of kinds take minutes.
const splitters = 8

// cut fills a plan with the ranges of kinds, and with their totals if it has a place for
// them.
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
		return err
	})
	if err != nil {
		return err
	}
	plan.Dealt = true
	for i, k := range kinds {
		plan.Ranges[k.Name] = pieces[i].ranges
		if plan.Totals != nil {
			plan.Totals[k.Name] = pieces[i].total
		}
	}
	return nil
}

// first is the shard that has a kind's first range; the next ones have the others. Kinds of
// a single range would all fall to one shard, did they not begin at different ones.
func (p Plan) first(kind string, ring int) int {
	if !p.Dealt {
		return 0
	}
	return shards.Of(kind, ring)
}

// shardOf is the shard that copies range i of a kind.
func (p Plan) shardOf(kind string, i, ring int) int { return (p.first(kind, ring) + i) % ring }

// part calls do with each range of a shard, always in the same order.
func (p Plan) part(shard, ring int, do func(kind string, i int, r record.Range)) {
	for _, kind := range slices.Sorted(maps.Keys(p.Ranges)) {
		ranges := p.Ranges[kind]
		for i := (shard - p.first(kind, ring) + ring) % ring; i < len(ranges); i += ring {
			do(kind, i, ranges[i])
		}
	}
}

// names are the ranges of a shard, in the order of part.
func (p Plan) names(shard, ring int) []string {
	var names []string
	p.part(shard, ring, func(kind string, i int, _ record.Range) { names = append(names, rangeName(kind, i)) })
	return names
}

// setDone notes which ranges are copied whole, a bit for each of names.
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

// done are the ranges that are copied whole.
func (c Checkpoint) done(names []string) map[string]bool {
	done := map[string]bool{}
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

// size is about what a checkpoint takes in the coordination store, with its key.
func (c Checkpoint) size() int {
	const head = 300 // key and field names
	n := head + len(c.Repair) + len(c.Position.Token) + len(c.Target.Token) + len(c.DoneBits)*4/3
	for name, r := range c.Copied {
		n += len(name) + (len(r.From)+len(r.To))*4/3 + 30
	}
	for kind, marker := range c.Markers {
		n += len(kind) + len(marker) + 6
	}
	return n
}
