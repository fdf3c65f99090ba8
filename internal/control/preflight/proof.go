package preflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Bounds of a proof. Only its own switch waits for it.
const (
	proofTimeout  = 2 * time.Minute        // plus proofPerKind for each kind
	proofPerKind  = 2 * time.Second        // create, fill, rename three times, remove, in both databases
	streamTimeout = 20 * time.Second       // for a stream to deliver a write made while it was open
	streamPerKind = 200 * time.Millisecond // in addition, because the proof's own changes come first
)

// proof tries the rollback of a switch in advance. It uses scratch collections with the shape of
// the kinds, in both databases, and only reads the data. Clients must not feel it, because an
// upgrade may wait for days. So it ends no session, even one that delays it, and tries no fence
// that locks a whole server.
type proof struct {
	older, newer Space // databases of the current version and of the target, in quiet mode
	up, down     transform.Direction
	record       upgradestate.Deployment
	prefix       string // prefix of all scratch names
	newPrefix    string // unused prefix of this proof
	renamesOnly  bool   // no rollback will exist: only measure the switch

	// at, if not nil, receives the next action as the end of a sentence about the proof.
	at func(doing string)

	old, new  *scratch
	newFences map[record.FenceClass]string // of prepare for new
	skipped   int                          // sampled groups that cannot be migrated; the copy has parked them
	records   int                          // records that went there and back
	kinds     int
	altered   int // records changed by transformers that are declared one-way
}

// proved is the result of a proof.
type proved struct {
	records, kinds, skipped, altered int

	fence, sealTarget, last time.Duration // renames of all kinds together
	write                   time.Duration // majority write of the source
}

// proof returns a new proof of the rollback from a version to d's current one.
func (p Proofs) proof(d upgradestate.Deployment, to string, renamesOnly bool) (*proof, error) {
	up, err := p.Registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return nil, err
	}
	// The direction of the reverse sync. Without one the version cannot be kept in sync.
	down, err := p.Registry.Direction(to, d.CurrentVersion)
	if err != nil {
		return nil, fmt.Errorf("the transformers cannot transform back: %w", err)
	}
	work := &proof{up: up, down: down, record: d, prefix: proofPrefix, newPrefix: newPrefix(proofPrefix), renamesOnly: renamesOnly}
	work.older, work.newer = p.Quiet(d.CurrentVersion), p.Quiet(to)
	if work.older == nil || work.newer == nil {
		return nil, fmt.Errorf("versions %s and %s must both be configured", d.CurrentVersion, to)
	}
	return work, nil
}

// run proves, and removes all scratch collections, including those of earlier proofs.
func (p *proof) run(ctx context.Context) (out proved, err error) {
	kinds := len(p.down.TargetKinds()) + len(p.up.TargetKinds())
	limit := proofLimit(kinds)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s, the limit for this number of kinds", limit))
	defer cancel()
	// The deadline alone would not tell the operator what took too long.
	defer func() {
		if err != nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}()
	p.doing("removes collections of earlier proofs; limit %s", limit)
	if err := p.sweep(ctx); err != nil {
		return out, fmt.Errorf("remove scratch collections of an earlier proof: %w", err)
	}
	// Also after the end of ctx: scratch collections must not stay.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), streamTimeout)
		defer cancel()
		if left := p.sweep(ctx); left != nil && err == nil {
			err = fmt.Errorf("remove scratch collections: %w", left)
		}
	}()
	p.doing("creates scratch collections of %d kinds; total limit %s", kinds, limit)
	if err := p.make(ctx); err != nil {
		return out, err
	}
	if p.renamesOnly {
		p.doing("renames scratch collections of %d kinds; total limit %s", kinds, limit)
		return p.moves(ctx)
	}
	p.doing("migrates records there and back; total limit %s", limit)
	// What the fences of the way back need is asked beside it. It depends on no records.
	g, both := errgroup.WithContext(ctx)
	g.Go(func() error { return p.there(both) })
	g.Go(func() (err error) { p.newFences, err = p.prepare(both, p.new); return err })
	if err := g.Wait(); err != nil {
		return out, err
	}
	p.doing("renames scratch collections of %d kinds; total limit %s", kinds, limit)
	if out, err = p.moves(ctx); err != nil {
		return out, err
	}
	out.records, out.kinds, out.skipped, out.altered = p.records, p.kinds, p.skipped, p.altered
	return out, nil
}

// doing reports the next action.
func (p *proof) doing(format string, args ...any) {
	if p.at != nil {
		p.at(fmt.Sprintf(format, args...))
	}
}

// proofLimit is the maximum duration of a proof of so many kinds.
func proofLimit(kinds int) time.Duration {
	return proofTimeout + time.Duration(kinds)*proofPerKind
}

// streamLimit is the maximum time for a stream of so many kinds to deliver the proof's changes.
func streamLimit(kinds int) time.Duration {
	return streamTimeout + time.Duration(kinds)*streamPerKind
}

// sweep removes the scratch collections of all proofs in both databases.
func (p *proof) sweep(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return p.older.Sweep(ctx, p.prefix) })
	g.Go(func() error { return p.newer.Sweep(ctx, p.prefix) })
	return g.Wait()
}

// make creates the scratch collections of both sides.
func (p *proof) make(ctx context.Context) error {
	side := func(ctx context.Context, ns Space, version, prefix string, kinds []record.KindSpec) (*scratch, error) {
		like, err := describeKinds(ctx, ns, p.record, version, kinds)
		if err != nil {
			return nil, err
		}
		return makeScratch(ctx, ns, prefix, like)
	}
	g, ctx := errgroup.WithContext(ctx)
	// Both versions may be in one database, so the names differ.
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

// there sends a sample of real records to the new side and back.
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

// seen opens the changes of the new version, as the reverse sync will. It then waits until the
// changes of the scratch collections show a write after from. It does not wait for changes of the
// kinds themselves, because a running copy makes more of them than a proof should read. scratch are the
// scratch kinds.
func (p *proof) seen(ctx context.Context, from record.Position, scratch []record.KindSpec) error {
	limit := streamLimit(len(p.up.TargetKinds()))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	timed := ctx
	wrap := func(err error) error {
		if errors.Is(timed.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("the change stream did not deliver the test changes within %s", limit)
		}
		return fmt.Errorf("cannot follow the changes of the database of %s: %w", p.up.To(), err)
	}
	g, ctx := errgroup.WithContext(ctx)
	// Open the real stream of the reverse sync, only to see that it opens.
	g.Go(func() error {
		all, err := p.newer.Watch(ctx, from, p.down.SourceKinds())
		if err == nil {
			err = closing.Bounded(ctx, all.Close)
		}
		return err
	})
	// Beside it, read a stream of the scratch collections, which shows the proof's own changes.
	g.Go(func() error { return p.changed(ctx, from, scratch) })
	if err := g.Wait(); err != nil {
		return wrap(err)
	}
	return nil
}

// changed waits until a stream of the scratch collections delivers a change after from.
func (p *proof) changed(ctx context.Context, from record.Position, scratch []record.KindSpec) error {
	stream, err := p.newer.Watch(ctx, from, scratch)
	if err != nil {
		return err
	}
	defer closing.Bounded(ctx, stream.Close) //nolint:errcheck // only read
	for {
		batch, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		// One change is enough: it shows that the stream delivers.
		if len(batch.Changes) > 0 {
			return nil
		}
	}
}
