package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Holder is a Space with limits on the kinds that it can hold.
type Holder interface {
	// Holds returns a *record.UnsupportedError for a kind that the database cannot hold as
	// declared.
	Holds(ctx context.Context, kind record.KindSpec) error
}

// Bounds of the search for large records and groups.
const (
	searchTime   = 10 * time.Second
	searchPage   = 1000
	searchGroups = 500_000
)

// limits checks for content that the target cannot hold: kinds as declared, and too large records
// and groups.
func (p *plan) limits(ctx context.Context) error {
	if err := p.holds(ctx); err != nil {
		return err
	}
	from, knownFrom := p.surveys[p.dir.From()]
	to, knownTo := p.surveys[p.dir.To()]
	// A server without a description has no known limits to compare.
	if !knownFrom || !knownTo {
		return nil
	}
	if narrower(to, from) {
		if err := p.search(ctx, to); err != nil {
			return p.failed(ctx, "limits", p.dir.To(), err)
		}
	}
	if narrower(from, to) {
		p.warn("limits", p.dir.From(), "it accepts records of %s: the reverse sync parks larger records that clients write after the switch, and these block a rollback", bounds(from))
	}
	return nil
}

// holds asks the target about each of its kinds.
func (p *plan) holds(ctx context.Context) error {
	holder, ok := p.Space(p.dir.To()).(Holder)
	if !ok {
		return nil
	}
	for _, k := range p.like {
		var refused *record.UnsupportedError
		err := holder.Holds(ctx, k.spec)
		switch {
		case errors.As(err, &refused):
			// Later steps would fail for the same reason, so they are skipped.
			p.refused = true
			p.fail("limits", k.kind, "the database of %s cannot hold it: %s", p.dir.To(), refused.Reason)
		case err != nil:
			return p.failed(ctx, "limits", p.dir.To(), err)
		}
	}
	if p.refused {
		p.like = nil // no scratch collections are possible
	}
	return nil
}

// narrower reports whether database a accepts less than b. A limit of 0 is none.
func narrower(a, b record.Survey) bool {
	less := func(a, b int) bool { return a > 0 && (b == 0 || a < b) }
	return less(a.MaxDocument, b.MaxDocument) || less(a.MaxGroup, b.MaxGroup) || less(a.MaxBytes, b.MaxBytes)
}

// bounds describes the limits of a database.
func bounds(s record.Survey) string {
	text := "up to " + size(int64(s.MaxDocument))
	if s.MaxGroup > 0 {
		text += fmt.Sprintf(", and groups of up to %d records and kinds with %s together", s.MaxGroup, size(int64(s.MaxBytes)))
	}
	return text
}

// group is the size of a group so far, and its latest kind.
type group struct {
	records, kinds, bytes int
	guards                int // guards that count as records of the target
	kind                  string
}

// with returns the group with one more record. It counts kinds correctly only if records come kind
// by kind.
func (g group) with(rec record.Record, perRecord int) group {
	if g.kind != rec.Kind {
		g.kind, g.kinds = rec.Kind, g.kinds+1
	}
	g.records, g.bytes = g.records+1, g.bytes+len(rec.Doc)+2*len(rec.Key)+perRecord
	return g
}

// search looks for records and groups of the source that are too large for the target. It does not
// see growth by the transform; the copied sample shows that.
func (p *plan) search(ctx context.Context, most record.Survey) error {
	// Sizes only, not records: the map has up to searchGroups entries.
	groups := map[transform.GroupID]group{}
	records, largest, whole := 0, 0, true
	ends := time.Now().Add(searchTime)
	for _, kind := range slices.Sorted(maps.Keys(p.infos)) {
		over, widest := 0, 0
		for r, done := (record.Range{}), false; !done; {
			// A large source cannot be read completely here; the report says so.
			if time.Now().After(ends) || len(groups) > searchGroups {
				whole = false
				break
			}
			page, err := p.Space(p.dir.From()).Scan(ctx, record.ScanRequest{Token: p.infos[kind].Token, Range: r, Limit: searchPage})
			if err != nil {
				return fmt.Errorf("look for large records of %s: %w", kind, err)
			}
			for _, rec := range page.Records {
				records++
				widest = max(widest, len(rec.Doc))
				if len(rec.Doc) > most.MaxDocument || most.MaxBytes > 0 && (group{}).with(rec, most.PerRecord).bytes > most.MaxBytes {
					over++
				}
				if id, ok, err := p.dir.GroupOf(rec.Kind, rec.Key); ok && err == nil {
					g := groups[id].with(rec, most.PerRecord)
					// The target keeps a guard record for each record of a fixed-name kind.
					if most.GuardsCount && p.infos[kind].Token.Fixed {
						g.guards++
					}
					groups[id] = g
				}
			}
			r, done = record.Range{From: page.Next}, page.Done
		}
		if over > 0 {
			p.fail("limits", kind, "%d records have more than the %s that the database of %s accepts, the largest %s: make them smaller, or %s",
				over, size(int64(most.MaxDocument)), p.dir.To(), size(int64(widest)), most.Raise)
		}
		largest = max(largest, widest)
	}
	wide, over := group{}, 0
	for _, g := range groups {
		wide = group{records: max(wide.records, g.records), kinds: max(wide.kinds, g.kinds), bytes: max(wide.bytes, g.bytes)}
		if most.MaxGroup > 0 && g.records+g.guards+g.kinds > most.MaxGroup || most.MaxBytes > 0 && g.bytes > most.MaxBytes && g.records > 1 {
			over++
		}
	}
	if over > 0 {
		p.fail("limits", p.dir.To(), "%d groups exceed its limit for a transaction of %d records and kinds together, or %s; the largest has up to %d records of %d kinds and %s: %s",
			over, most.MaxGroup, size(int64(most.MaxBytes)), wide.records, wide.kinds, size(int64(wide.bytes)), most.Raise)
		return nil
	}
	text := fmt.Sprintf("it accepts records of %s; the largest has %s, the largest group %d records", bounds(most), size(int64(largest)), wide.records)
	if whole {
		p.ok("limits", p.dir.To(), "%s", text)
		return nil
	}
	p.warn("limits", p.dir.To(), "%s, among the %d sampled records; the others were not checked", text, records)
	return nil
}
