package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// measured is the result of copying a sample.
type measured struct {
	groups, failed int
	records        int64
	bytes          int64 // of the source's records
	made           int64 // bytes of the resulting records
	largest        int64 // largest resulting document
	largestOf      string
	took           time.Duration
	examples       []string
}

const (
	measureTime   = 2 * time.Second
	measureGroups = 500
)

// copy copies a sample into scratch collections, and estimates the time for all records.
func (p *plan) copy(ctx context.Context) error {
	if p.like == nil {
		return nil
	}
	if p.ReadOnly {
		// Without scratch collections the estimate covers reading and transforming only.
		if err := p.measure(ctx, nil); err != nil {
			return p.failed(ctx, "copy", p.dir.To(), err)
		}
	} else if err := p.inScratch(ctx, "copy", p.Space(p.dir.To()), p.dir.To(), p.like, p.measure); err != nil {
		return err
	}
	var records int64
	for _, size := range p.sizes {
		records += size.Records
	}
	m, most := p.tried, int64(p.surveys[p.dir.To()].MaxDocument)
	switch {
	case m.failed > 0:
		p.warn("copy", p.dir.To(), "%d of %d sampled groups would be parked, which blocks the switch: %s", m.failed, m.groups, some(m.examples))
	case m.groups > 0:
		p.ok("copy", p.dir.To(), "%d groups were tried, and all can be migrated", m.groups)
	}
	switch {
	case most > 0 && m.largest > most:
		p.fail("copy", m.largestOf, "the transform made a document of %s, but the database of %s accepts %s: change the transformer", size(m.largest), p.dir.To(), size(most))
	case most > 0 && m.largest > most/4*3:
		p.warn("copy", m.largestOf, "the transform made a document of %s, near the limit of %s of the database of %s", size(m.largest), size(most), p.dir.To())
	}
	// An empty source: the rate below would be a division by zero.
	if m.records == 0 {
		none := int64(0)
		p.report.EstimatedCopySeconds = &none
		p.ok("copy", p.dir.To(), "there is nothing to copy")
		return nil
	}
	rate := float64(m.records) / m.took.Seconds()
	// The configured limit slows the real copy, but not the sample.
	if most := p.Settings.MaxRate; most > 0 {
		rate = min(rate, float64(most))
	}
	seconds := int64(float64(records)/rate) + 1
	p.report.EstimatedCopySeconds = &seconds
	without := ""
	if p.ReadOnly {
		without = " without writing"
	}
	p.ok("copy", p.dir.To(), "about %s for %d records at %.0f a second, measured with one worker%s; %d are configured",
		time.Duration(seconds)*time.Second, records, rate, without, p.Settings.Workers)
	return nil
}

// measure copies records for measureTime. Without scratch collections it only transforms them.
func (p *plan) measure(ctx context.Context, s *scratch) error {
	src := record.Tokens{}
	for kind, info := range p.infos {
		src[kind] = info.Token
	}
	from := p.Space(p.dir.From())
	ranges := map[string]record.Range{}
	for kind := range src {
		ranges[kind] = record.Range{}
	}
	for start := time.Now(); time.Since(start) < measureTime && len(ranges) > 0; {
		// One page of each kind in turn, so that a large kind does not use all the time.
		for kind, r := range ranges {
			before := time.Now()
			// Keys are enough here; apply reads the complete groups.
			page, err := from.Scan(ctx, record.ScanRequest{Token: src[kind], Range: r, Limit: measureGroups, KeysOnly: true})
			if err != nil {
				return fmt.Errorf("read a sample of %s: %w", kind, err)
			}
			if err := p.apply(ctx, s, src, page.Records, before); err != nil {
				return err
			}
			if ranges[kind] = (record.Range{From: page.Next}); page.Done {
				delete(ranges, kind)
			}
		}
	}
	if s == nil {
		return nil
	}
	return s.each(ctx, p.dir.TargetKinds(), func(r record.Record) { p.made(r.Kind, len(r.Doc)) })
}

// made counts a resulting document. Lineage needs space, too, but is no document of the version.
func (p *plan) made(kind string, bytes int) {
	p.tried.made += int64(bytes)
	if n := int64(bytes); n > p.tried.largest && !transform.IsLineage(kind) {
		p.tried.largest, p.tried.largestOf = n, kind
	}
}

// apply copies the groups of records. Groups by content may lack members here, so their failures do
// not count.
func (p *plan) apply(ctx context.Context, s *scratch, src record.Tokens, records []record.Record, start time.Time) error {
	ids := groupsOf(records, p.dir.GroupOf)
	// A page is of one kind, so all of its groups have the same spec.
	byContent := len(ids) > 0 && p.dir.LineageKind(ids[0].Spec) != ""
	var groups, units []transform.GroupID
	if byContent {
		units = ids
	} else {
		groups = ids
	}
	sample := sampler{source: p.Space(p.dir.From()), dir: p.dir, src: src, epoch: p.record.Epoch}
	held, err := sample.read(ctx, groups, units)
	if err != nil {
		return err
	}
	ids = groupsOf(held.records, p.dir.GroupOf) // the groups that fit into one read
	var failed map[transform.GroupID]error
	if s == nil {
		failed, err = p.transformed(ctx, held, src, ids)
	} else {
		failed, err = leg{dir: p.dir, from: held, src: transform.View{Tokens: src}, to: s, epoch: p.record.Epoch, load: true}.apply(ctx, ids)
	}
	if err != nil {
		return err
	}
	p.tried.took += time.Since(start)
	p.tried.groups += len(ids)
	for _, r := range held.records {
		p.tried.records++
		// Count only migrated bytes: space compares them with the resulting bytes.
		if id, _, err := p.dir.GroupOf(r.Kind, r.Key); err == nil && failed[id] == nil {
			p.tried.bytes += int64(len(r.Doc))
		}
	}
	if byContent {
		// A failure may only mean that the sample lacks a member.
		return nil
	}
	p.tried.failed += len(failed)
	for id, err := range failed {
		kind, key := p.dir.Anchor(id)
		// A panic's error has the stack in its further lines.
		text, _, _ := strings.Cut(err.Error(), "\n")
		if s != nil {
			text = s.told(err)
		}
		p.tried.examples = append(p.tried.examples, fmt.Sprintf("%s %s: %s", kind, key, text))
	}
	// The order of a map is random; equal plans must read the same.
	slices.Sort(p.tried.examples)
	return nil
}

// space checks whether the target has room for the copy.
func (p *plan) space(context.Context) error {
	var bytes int64
	for _, size := range p.sizes {
		bytes += size.Bytes
	}
	factor := 1.0
	// The transform may change the size, so scale by the sample.
	// Without a sample, assume that the size stays.
	if p.tried.bytes > 0 {
		factor = float64(p.tried.made) / float64(p.tried.bytes)
	}
	need := int64(float64(bytes) * factor)
	text := fmt.Sprintf("needs about %s before compression, plus indexes (%.1f times the source's %s)", size(need), factor, size(bytes))
	s, known := p.surveys[p.dir.To()]
	switch free := s.DiskFree; {
	case !known || s.DiskTotal == 0:
		p.warn("space", p.dir.To(), "%s; the server does not report its free space: check it yourself", text)
	case need > free:
		p.fail("space", p.dir.To(), "%s, and %s are free: make room first", text, size(free))
	case need > free/2:
		p.warn("space", p.dir.To(), "%s, and %s are free: indexes and the oplog take more", text, size(free))
	default:
		p.ok("space", p.dir.To(), "%s; %s are free", text, size(free))
	}
	return nil
}

// oplog checks whether the source keeps its changes for as long as the copy takes. The copy cannot
// resume from changes that the oplog has dropped.
func (p *plan) oplog(context.Context) error {
	s, known := p.surveys[p.dir.From()]
	if !known {
		return nil
	}
	// Without privileges for the oplog the plan is still useful.
	if s.OplogProblem != "" {
		p.warn("oplog", p.dir.From(), "cannot find out how far its changes reach back: %s", s.OplogProblem)
		return nil
	}
	var need time.Duration
	if p.report.EstimatedCopySeconds != nil {
		need = time.Duration(*p.report.EstimatedCopySeconds) * time.Second
	}
	text := fmt.Sprintf("changes reach back %s, and the copy takes about %s", s.Oplog.Round(time.Second), need)
	switch {
	case s.Oplog < need:
		p.fail("oplog", p.dir.From(), "%s: enlarge the oplog (replSetResizeOplog), or a controller that is down for a while must copy everything again", text)
	// The estimate is from a sample, and a controller may be down for a while.
	case s.Oplog < 2*need:
		p.warn("oplog", p.dir.From(), "%s: twice this oplog would leave time for a controller to be down", text)
	default:
		p.ok("oplog", p.dir.From(), "%s", text)
	}
	return nil
}
