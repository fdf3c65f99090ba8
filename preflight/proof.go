package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Bounds of a proof. It holds up nothing but the switch that it is for.
const (
	proofTimeout  = 2 * time.Minute        // and proofPerKind for each kind
	proofPerKind  = 2 * time.Second        // it is made, filled, renamed three times and removed in both databases
	streamTimeout = 20 * time.Second       // for a stream to show what was written while it was open
	streamPerKind = 200 * time.Millisecond // in addition: all that the proof did to each comes before it
)

// proof tries, before a switch, what its rollback will need: in scratch collections that
// are shaped like the kinds, in both databases. Of the data it only reads, and clients do not
// feel it, for an upgrade may be held for days: no session is ended, whatever it holds up,
// and no fence is tried that locks the whole server.
type proof struct {
	older, newer Space // the databases of the current version and of the target, quietly
	up, down     transform.Direction
	record       upgradestate.Deployment
	prefix       string // that scratch names begin with
	newPrefix    string // one that nobody has used
	renamesOnly  bool   // there will be no rollback: only measure the switch

	// at, if not nil, is told what the proof is about to do, as the end of a sentence about it.
	at func(doing string)

	old, new *scratch
	skipped  int // sampled groups that cannot be migrated: the copy has parked them
	records  int // that went there and back
	kinds    int
	altered  int // of them, by transformers that are declared not to give back what was there
}

// proved is what a proof found out.
type proved struct {
	records, kinds, skipped, altered int

	fence, sealTarget, last time.Duration // renames of all kinds at once
	write                   time.Duration // of the source, acknowledged by a majority
}

// proof returns one of the rollback from a version to d's current one, which has not run yet.
func (p Proofs) proof(d upgradestate.Deployment, to string, renamesOnly bool) (*proof, error) {
	up, err := p.Registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return nil, err
	}
	down, err := p.Registry.Direction(to, d.CurrentVersion)
	if err != nil {
		return nil, fmt.Errorf("the transformers have no direction back: %w", err)
	}
	work := &proof{up: up, down: down, record: d, prefix: proofPrefix, newPrefix: newPrefix(proofPrefix), renamesOnly: renamesOnly}
	work.older, work.newer = p.Quiet(d.CurrentVersion), p.Quiet(to)
	if work.older == nil || work.newer == nil {
		return nil, fmt.Errorf("versions %s and %s must both be configured", d.CurrentVersion, to)
	}
	return work, nil
}

// run proves, and leaves nothing behind, of earlier proofs either.
func (p *proof) run(ctx context.Context) (out proved, err error) {
	kinds := len(p.down.TargetKinds()) + len(p.up.TargetKinds())
	limit := proofLimit(kinds)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has taken longer than %s, the most for so many kinds", limit))
	defer cancel()
	defer func() {
		if err != nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}()
	p.doing("removes what earlier proofs have left, and may take %s", limit)
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
	p.doing("makes scratch collections of %d kinds, and may take %s in all", kinds, limit)
	if err := p.make(ctx); err != nil {
		return out, err
	}
	if p.renamesOnly {
		p.doing("renames scratch collections of %d kinds, and may take %s in all", kinds, limit)
		return p.moves(ctx)
	}
	p.doing("brings records there and back, and may take %s in all", limit)
	if err := p.there(ctx); err != nil {
		return out, err
	}
	p.doing("renames scratch collections of %d kinds, and may take %s in all", kinds, limit)
	if out, err = p.moves(ctx); err != nil {
		return out, err
	}
	out.records, out.kinds, out.skipped, out.altered = p.records, p.kinds, p.skipped, p.altered
	return out, nil
}

func (p *proof) doing(format string, args ...any) {
	if p.at != nil {
		p.at(fmt.Sprintf(format, args...))
	}
}

// proofLimit is how long a proof of so many kinds may take.
func proofLimit(kinds int) time.Duration {
	return proofTimeout + time.Duration(kinds)*proofPerKind
}

// streamLimit is how long a stream of so many kinds may take to show what was done there.
func streamLimit(kinds int) time.Duration {
	return streamTimeout + time.Duration(kinds)*streamPerKind
}

func (p *proof) sweep(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return p.older.Sweep(ctx, p.prefix) })
	g.Go(func() error { return p.newer.Sweep(ctx, p.prefix) })
	return g.Wait()
}

// make makes the scratch collections of both sides.
func (p *proof) make(ctx context.Context) error {
	side := func(ctx context.Context, ns Space, version, prefix string, kinds []record.KindSpec) (*scratch, error) {
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

// there brings real records to the new side and back.
func (p *proof) there(ctx context.Context) error {
	s := sampler{
		source: p.older, target: p.newer, dir: p.up, epoch: p.record.Epoch, perSpec: groupsEach(len(p.up.SourceKinds())),
		src: syncer.Tokens(p.record, p.up.From()), dst: syncer.Tokens(p.record, p.up.To()),
	}
	source, err := s.sample(ctx)
	if err != nil {
		return err
	}
	return p.trip(ctx, source, s.src)
}

// seen opens the changes of the new version, as the reverse sync will, and waits until those of
// what stands for its kinds show what was done after a position. Of the kinds themselves a copy
// that goes on changes more than the proof would want to read.
func (p *proof) seen(ctx context.Context, from record.Position) error {
	limit := streamLimit(len(p.up.TargetKinds()))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	wrap := func(err error) error {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("nothing was seen within %s of what was done there", limit)
		}
		return fmt.Errorf("the changes of the database of %s cannot be followed: %w", p.up.To(), err)
	}
	all, err := p.newer.Watch(ctx, from, p.down.SourceKinds())
	if err == nil {
		err = all.Close(ctx)
	}
	if err != nil {
		return wrap(err)
	}
	var kinds []record.KindSpec
	for _, k := range p.new.kinds {
		kinds = append(kinds, k.spec)
	}
	stream, err := p.newer.Watch(ctx, from, kinds)
	if err != nil {
		return wrap(err)
	}
	defer stream.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing more is wanted of it
	for {
		batch, err := stream.Next(ctx)
		if err != nil {
			return wrap(err)
		}
		if len(batch.Changes) > 0 {
			return nil
		}
	}
}

// trip brings records of the source to the new side, and from there to where nothing is, as
// they come back when they are created; to where they are, as they come back when they are
// changed; and, for half of them, as they come back when they are deleted. Nothing may be
// refused, what was not changed has to be as it was, and what is deleted has to go, with
// nothing else.
func (p *proof) trip(ctx context.Context, source *frozen, toks record.Tokens) error {
	e := p.record.Epoch
	over, ids := leg{dir: p.up, from: source, src: transform.View{Tokens: toks}, to: p.new, epoch: e}, groupsOf(source.records, p.up.GroupOf)
	failed, err := over.apply(ctx, ids)
	if err == nil {
		err = over.compare(ctx, ids, failed)
	}
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
	ids = groupsOf(there, p.down.GroupOf)
	back := leg{dir: p.down, from: p.new, src: transform.View{Tokens: p.new.toks}, to: p.old, epoch: e + 1}
	if err := p.back(ctx, back, ids); err != nil {
		return err
	}
	if err := p.restore(ctx, originals, e+2); err != nil {
		return err
	}
	back.epoch = e + 3
	if err := p.back(ctx, back, ids); err != nil {
		return err
	}
	if err := p.compare(ctx, originals); err != nil {
		return err
	}
	return p.delete(ctx, back, there, ids)
}

// back brings groups to the old side. None may fail.
func (p *proof) back(ctx context.Context, l leg, ids []transform.GroupID) error {
	failed, err := l.apply(ctx, ids)
	if err == nil {
		err = l.compare(ctx, ids, failed)
	}
	if err != nil {
		return fmt.Errorf("to scratch collections of %s: %w", p.down.To(), err)
	}
	return p.refused(failed)
}

// compare counts what has come back. It has to be as it was, but for records whose
// transformer is declared not to give back what it was made of.
func (p *proof) compare(ctx context.Context, originals []record.Record) error {
	got, err := p.old.all(ctx, p.up.SourceKinds())
	if err != nil {
		return err
	}
	kinds := map[string]bool{}
	for _, r := range originals {
		kinds[r.Kind] = true
	}
	p.records, p.kinds = len(originals), len(kinds)
	oneWay := func(r record.Record) bool {
		id, _, err := p.up.GroupOf(r.Kind, r.Key)
		return err == nil && transform.ReversalOf(p.up, id) == transform.ReversalNone
	}
	both := func(r record.Record) bool { return !oneWay(r) }
	p.altered = len(differences(without(originals, both), without(got, both)))
	if differ := differences(without(originals, oneWay), without(got, oneWay)); len(differ) > 0 {
		return fmt.Errorf("records of %s differ when they come back unchanged: %s: correct the transformer", p.down.To(), some(differ))
	}
	return nil
}

func without(rs []record.Record, which func(record.Record) bool) []record.Record {
	return slices.DeleteFunc(slices.Clone(rs), which)
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
	results, err := p.old.apply(ctx, batch)
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

// delete deletes every second group on the new side, as clients do, and brings that back.
func (p *proof) delete(ctx context.Context, l leg, there []record.Record, ids []transform.GroupID) error {
	r := transform.Resolver{Direction: l.dir, Source: l.from, Target: l.to, From: l.src, To: l.dst(), Epoch: l.epoch}
	cs, _, err := r.Resolve(ctx, ids)
	if err != nil {
		return fmt.Errorf("delete in scratch collections of %s: %w", p.up.To(), err)
	}
	var gone []transform.GroupID
	batch := record.Batch{Epoch: l.epoch}
	for i := 0; i < len(cs); i += 2 {
		members := cs[i].Members()
		gone = append(gone, members...)
		for _, id := range members {
			for _, s := range p.down.SourceSelect(id) {
				for _, rec := range there {
					if selects(s, rec) {
						batch.Groups = append(batch.Groups, record.GroupWrite{Group: rec.Key.String(), Writes: []record.Write{{Kind: rec.Kind, Key: rec.Key}}})
					}
				}
			}
		}
	}
	if len(batch.Groups) == 0 {
		return nil
	}
	if _, err := p.new.apply(ctx, batch); err != nil {
		return fmt.Errorf("delete in scratch collections of %s: %w", p.up.To(), err)
	}
	now, err := p.newer.Position(ctx)
	if err != nil {
		return err
	}
	l.src.NotBefore = now.At
	if err := p.back(ctx, l, gone); err != nil {
		return fmt.Errorf("deleted in %s: %w", p.up.To(), err)
	}
	failed := map[transform.GroupID]error{}
	if err := l.compare(ctx, ids, failed); err != nil {
		return err
	}
	if err := p.refused(failed); err != nil {
		return fmt.Errorf("when others are deleted in %s: %w", p.up.To(), err)
	}
	return nil
}
