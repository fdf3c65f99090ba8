package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller/record"
	"dbcontroller/transform"
	"dbcontroller/upgradestate"
)

// Bounds of a proof. It holds up nothing but the switch that it is for.
const (
	proofTimeout  = 2 * time.Minute
	streamTimeout = 20 * time.Second // for a stream to show what was written while it was open
)

// proof tries, before a switch, what its way back will need: in scratch collections that
// are shaped like the kinds, in both databases. Of the data it only reads.
type proof struct {
	older, newer scratchSpace // the databases of the current version and of the target
	up, down     transform.Direction
	record       upgradestate.Deployment
	prefix       string // that scratch names begin with
	newPrefix    string // one that nobody has used
	renamesOnly  bool   // there will be no way back: only measure the switch

	old, new *scratch
	skipped  int // sampled groups that cannot be brought over: the copy has parked them
	records  int // that went there and back
	kinds    int
}

// proved is what a proof found out.
type proved struct {
	records, kinds, skipped int
	fence, sealTarget, last time.Duration // renames of all kinds at once
	write                   time.Duration // of the source, acknowledged by a majority
}

func (a *App) newProof(d upgradestate.Deployment, to string, renamesOnly bool) (*proof, error) {
	up, err := a.registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return nil, err
	}
	down, err := a.registry.Direction(to, d.CurrentVersion)
	if err != nil {
		return nil, fmt.Errorf("there is no way back in the transformers: %w", err)
	}
	p := &proof{up: up, down: down, record: d, prefix: proofPrefix, newPrefix: newPrefix(proofPrefix), renamesOnly: renamesOnly}
	p.older, p.newer = a.scratches[d.CurrentVersion], a.scratches[to]
	if p.older == nil || p.newer == nil {
		return nil, fmt.Errorf("versions %s and %s must both be configured", d.CurrentVersion, to)
	}
	return p, nil
}

// run proves, and leaves nothing behind, of earlier proofs either.
func (p *proof) run(ctx context.Context) (out proved, err error) {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	if err := p.sweep(ctx); err != nil {
		return out, fmt.Errorf("remove scratch collections of an earlier proof: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), streamTimeout)
		defer cancel()
		if left := p.sweep(ctx); left != nil && err == nil {
			err = fmt.Errorf("remove scratch collections: %w", left)
		}
	}()
	if err := p.make(ctx); err != nil {
		return out, err
	}
	if p.renamesOnly {
		return p.moves(ctx, nil)
	}
	stream, err := p.watch(ctx)
	if err != nil {
		return out, err
	}
	defer stream.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing more is wanted of it
	if err := p.there(ctx); err != nil {
		return out, err
	}
	if out, err = p.moves(ctx, stream); err != nil {
		return out, err
	}
	out.records, out.kinds, out.skipped = p.records, p.kinds, p.skipped
	return out, nil
}

func (p *proof) sweep(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return p.older.Sweep(ctx, p.prefix) })
	g.Go(func() error { return p.newer.Sweep(ctx, p.prefix) })
	return g.Wait()
}

// make makes the scratch collections of both sides.
func (p *proof) make(ctx context.Context) error {
	side := func(ctx context.Context, ns scratchSpace, version, prefix string, kinds []record.KindSpec) (*scratch, error) {
		like, err := describeKinds(ctx, ns, p.record, version, kinds)
		if err != nil {
			return nil, err
		}
		return makeScratch(ctx, ns, prefix, like)
	}
	g, ctx := errgroup.WithContext(ctx)
	// Both may be in one database.
	g.Go(func() (err error) {
		p.old, err = side(ctx, p.older, p.up.From(), p.newPrefix+"old.", p.down.TargetKinds())
		return err
	})
	g.Go(func() (err error) {
		p.new, err = side(ctx, p.newer, p.up.To(), p.newPrefix+"new.", p.up.TargetKinds())
		return err
	})
	return g.Wait()
}

// there brings real records to the new side and back, and deletes some.
func (p *proof) there(ctx context.Context) error {
	s := sampler{
		source: p.older, target: p.newer, dir: p.up, epoch: p.record.Epoch, perSpec: tripGroups,
		src: tokens(p.record, p.up.From()), dst: tokens(p.record, p.up.To()),
	}
	source, err := s.sample(ctx)
	if err != nil {
		return err
	}
	if err := p.trip(ctx, source, s.src); err != nil {
		return err
	}
	return p.delete(ctx)
}

// watch opens the changes of the new version, as the way back will, and of what stands for
// its kinds.
func (p *proof) watch(ctx context.Context) (record.Stream, error) {
	wrap := func(err error) error {
		return fmt.Errorf("the changes of the database of %s cannot be followed: %w", p.up.To(), err)
	}
	at, err := p.newer.Position(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	kinds := p.down.SourceKinds()
	for _, k := range p.new.kinds {
		kinds = append(kinds, k.spec)
	}
	stream, err := p.newer.Watch(ctx, at, kinds)
	if err != nil {
		return nil, wrap(err)
	}
	return stream, nil
}

// seen waits until the stream shows what was done to a scratch collection.
func (p *proof) seen(ctx context.Context, stream record.Stream) error {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	for {
		batch, err := stream.Next(ctx)
		if err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("nothing was seen within %s of what was done there", streamTimeout)
			}
			return fmt.Errorf("the changes of the database of %s cannot be followed: %w", p.up.To(), err)
		}
		if slices.ContainsFunc(batch.Changes, func(c record.Change) bool { return strings.HasPrefix(c.Kind, p.newPrefix) }) {
			return nil
		}
	}
}

// trip brings records of the source to the new side and back to where nothing is, as they
// come back when they are created there; and, where that loses something, to where they
// are, as they come back when they are changed. Nothing may be refused, and what was not
// changed has to be as it was.
func (p *proof) trip(ctx context.Context, source *frozen, toks record.Tokens) error {
	e := p.record.Epoch
	failed, err := leg{dir: p.up, from: source, toks: toks, to: p.new, epoch: e, load: true}.
		bring(ctx, groupsOf(source.records, p.up.GroupOf))
	if err != nil {
		return fmt.Errorf("to scratch collections of %s: %w", p.up.To(), err)
	}
	p.skipped = len(failed)
	originals := slices.DeleteFunc(slices.Clone(source.records), func(r record.Record) bool {
		id, ok, err := p.up.GroupOf(r.Kind, r.Key)
		return !ok || err != nil || failed[id] != nil
	})
	there, err := p.new.all(ctx, p.down.SourceKinds())
	if err != nil {
		return err
	}
	ids := groupsOf(there, p.down.GroupOf)
	back := leg{dir: p.down, from: p.new, toks: p.new.toks, to: p.old, epoch: e + 1, load: true}
	if failed, err = back.bring(ctx, ids); err != nil {
		return fmt.Errorf("to scratch collections of %s: %w", p.down.To(), err)
	}
	if err := p.refused(failed); err != nil {
		return err
	}
	if lost, err := p.compare(ctx, originals); err != nil || len(lost) == 0 {
		return err
	}
	if err := p.restore(ctx, originals, e+2); err != nil {
		return err
	}
	back.epoch, back.load = e+3, false
	if failed, err = back.bring(ctx, ids); err != nil {
		return fmt.Errorf("to scratch collections of %s: %w", p.down.To(), err)
	}
	if err := p.refused(failed); err != nil {
		return err
	}
	differ, err := p.compare(ctx, originals)
	if err != nil || len(differ) == 0 {
		return err
	}
	return fmt.Errorf("records of %s differ when they come back unchanged: %s: correct the transformer", p.down.To(), some(differ))
}

// compare counts what has come back and tells in what it differs.
func (p *proof) compare(ctx context.Context, originals []record.Record) ([]string, error) {
	got, err := p.old.all(ctx, p.up.SourceKinds())
	if err != nil {
		return nil, err
	}
	kinds := map[string]bool{}
	for _, r := range originals {
		kinds[r.Kind] = true
	}
	p.records, p.kinds = len(originals), len(kinds)
	return differences(originals, got), nil
}

// restore puts the originals where they came back to, and takes away what else is there.
func (p *proof) restore(ctx context.Context, originals []record.Record, epoch uint64) error {
	got, err := p.old.all(ctx, p.up.SourceKinds())
	if err != nil {
		return err
	}
	batch := record.Batch{Epoch: epoch}
	add := func(r record.Record, doc []byte) {
		batch.Groups = append(batch.Groups, record.GroupWrite{
			Group: r.Key.String(), Writes: []record.Write{{Kind: r.Kind, Key: r.Key, Doc: doc}},
		})
	}
	for _, r := range got {
		if !slices.ContainsFunc(originals, func(o record.Record) bool { return o.Kind == r.Kind && o.Key == r.Key }) {
			add(r, nil)
		}
	}
	for _, r := range originals {
		add(r, r.Doc)
	}
	results, err := p.old.write(ctx, batch, false)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Outcome == record.Refused {
			return fmt.Errorf("%s %s could not be written again as it is: %w: correct the record, or the index or validator that refuses it",
				batch.Groups[i].Writes[0].Kind, batch.Groups[i].Group, r.Err)
		}
	}
	return nil
}

// refused is the error of groups that cannot come back.
func (p *proof) refused(failed map[transform.GroupID]error) error {
	if len(failed) == 0 {
		return nil
	}
	var texts []string
	for id, err := range failed {
		kind, key := p.down.Anchor(id)
		text := p.old.told(err)
		if !transform.IsLineage(kind) {
			text = fmt.Sprintf("%s %s: %s", kind, key, text)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return fmt.Errorf("%d of the groups tried could not come back from %s to %s: %s: correct the transformer, or the index or validator of %s that refuses them",
		len(failed), p.up.To(), p.down.To(), some(texts), p.down.To())
}

func some(texts []string) string {
	const most = 3
	if len(texts) > most {
		return strings.Join(texts[:most], "; ") + "; ..."
	}
	return strings.Join(texts, "; ")
}

// delete makes one record of each kind a tombstone, as deletes come back.
func (p *proof) delete(ctx context.Context) error {
	got, err := p.old.all(ctx, p.up.SourceKinds())
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	batch := record.Batch{Epoch: p.record.Epoch + 4}
	for _, r := range got {
		if !gone[r.Kind] {
			gone[r.Kind] = true
			batch.Groups = append(batch.Groups, record.GroupWrite{Group: r.Key.String(), Writes: []record.Write{{Kind: r.Kind, Key: r.Key}}})
		}
	}
	if len(batch.Groups) == 0 {
		return nil
	}
	if _, err := p.old.write(ctx, batch, false); err != nil {
		return fmt.Errorf("delete in scratch collections of %s: %w", p.down.To(), err)
	}
	return nil
}
