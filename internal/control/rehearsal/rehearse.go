package rehearsal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/upgradestate"
)

// Suffix and maximum length of the names of scratch databases.
const (
	rehearsalSuffix = "_dbcrehearsal"
	maxDatabaseName = 63
)

// defaultSample is the number of records of a kind that go through the rehearsed switch.
const defaultSample = 1000

// rehearsal is one run of Rehearse. It runs a controller like the real one, with scratch databases
// and a coordination store in memory. So it does exactly the work of an upgrade.
//
// Clients feel only the load of its reads. It never changes the real databases. In the scratch
// databases it does nothing that waits for, or ends, other work on the server. So it fences
// fixed-name kinds there by a validator, whichever class the real switch will use; 'plan' tries
// that class. It needs readWrite and dbAdmin on the scratch databases, which the roles for the real
// ones do not include.
type rehearsal struct {
	*Rehearser
	from, to string // versions, and names of their scratch databases
	real     upgradestate.Deployment
	say      func(api.Work)
	last     atomic.Pointer[api.Work] // last reported progress
	report   *pb.RehearseReport
	scratch  []string // versions of the claimed scratch databases
}

// Rehearse implements the API. First it copies, follows and compares everything into a scratch
// database. Then it sends a sample through the switch and back between two of them. It returns an
// error if the rehearsal cannot run; findings are in the report.
func (a *Rehearser) Rehearse(ctx context.Context, req *pb.RehearseRequest, progress func(api.Work)) (*pb.RehearseReport, error) {
	r, err := a.newRehearsal(ctx, req, progress)
	if err != nil {
		return nil, err
	}
	defer r.cleanUp(ctx)
	limit := defaultLimit
	if req.LimitSeconds > 0 {
		limit = time.Duration(req.LimitSeconds) * time.Second
	}
	if err := r.within(ctx, limit, func(ctx context.Context) error { return r.run(ctx, req) }); err != nil {
		// A verdict is a result of the rehearsal, not its failure.
		if !errors.Is(err, errVerdict) {
			return nil, err
		}
		r.problem("%v", err)
	}
	rep := r.report
	rep.Ok = rep.Mismatched == 0 && rep.Parked == 0 && len(rep.Problems) == 0 &&
		!slices.ContainsFunc(rep.Switches, func(s *pb.Rehearsal) bool { return s.Mismatched > 0 })
	return rep, nil
}

// run does both parts.
func (r *rehearsal) run(ctx context.Context, req *pb.RehearseRequest) error {
	if !req.SampleOnly {
		if err := r.copyAll(ctx); err != nil {
			return fmt.Errorf("copy into a scratch database: %w", err)
		}
	}
	sample := int(req.Sample)
	if sample == 0 {
		sample = defaultSample
	}
	if err := r.switchSample(ctx, sample); err != nil {
		return fmt.Errorf("switch a sample: %w", err)
	}
	return nil
}

// errNoScratch refuses a rehearsal without scratch databases, or without a place for its own
// deployment.
var errNoScratch = errors.New("this controller has no scratch databases")

func (a *Rehearser) newRehearsal(ctx context.Context, req *pb.RehearseRequest, progress func(api.Work)) (*rehearsal, error) {
	if a.Backend == nil {
		return nil, errNoScratch
	}
	d, err := a.Deployment.Get(ctx)
	if err != nil {
		return nil, err
	}
	// The scratch databases and the load would disturb a running upgrade.
	if d.Upgrade != nil {
		return nil, fmt.Errorf("upgrade %s to %s is running: let it finish or abort it first", d.Upgrade.ID, d.Upgrade.TargetVersion)
	}
	to := req.TargetVersion
	if to == "" {
		next, ok := a.Target(d)
		if !ok {
			return nil, fmt.Errorf("version %s is active and no other one is configured: name a target version", d.CurrentVersion)
		}
		to = next
	}
	if _, err := a.Registry.Direction(d.CurrentVersion, to); err != nil {
		return nil, err
	}
	for _, version := range []string{d.CurrentVersion, to} {
		// Both are needed: the source to read from, the target's server for the scratch database.
		if a.Backend.Real(version) == nil {
			return nil, fmt.Errorf("version %s is not configured here", version)
		}
	}
	r := &rehearsal{Rehearser: a, real: d, from: d.CurrentVersion, to: to, report: &pb.RehearseReport{}}
	r.say = func(w api.Work) {
		// A verdict after the limit names this progress.
		r.last.Store(&w)
		progress(w)
	}
	return r, nil
}

// claim creates the scratch database of a version and notes it for the cleanup.
func (r *rehearsal) claim(ctx context.Context, version string) error {
	// Note it first: a failed claim may have created a part.
	r.scratch = append(r.scratch, version)
	return r.Backend.Claim(ctx, version)
}

// ScratchName returns the name of the scratch database next to the database name. A hash replaces
// the end of a long name.
func ScratchName(name string) string {
	if most := maxDatabaseName - len(rehearsalSuffix); len(name) > most {
		sum := sha256.Sum256([]byte(name))
		// Cutting alone could give two long names the same scratch database.
		hash := "_" + hex.EncodeToString(sum[:8])
		name = name[:most-len(hash)] + hash
	}
	return name + rehearsalSuffix
}

// cleanUpLimit bounds the cleanup after the caller has left.
const cleanUpLimit = 30 * time.Second

func (r *rehearsal) cleanUp(ctx context.Context) {
	// The databases must go even if the caller has left.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	for _, version := range r.scratch {
		if err := r.Backend.Drop(ctx, version); err != nil {
			// Report it, because the operator may want the space back before the next rehearsal.
			r.report.Problems = append(r.report.Problems, err.Error())
			r.Log.Warn("a scratch database remains; the next rehearsal drops it", zap.Error(err))
		}
	}
}

// stage is a running controller of a rehearsal.
type stage struct {
	Stage
	deployment StageDeployment
	stop       context.CancelFunc
	ended      chan error
}

// open starts a controller over two databases. Its deployment begins at the first one. If source is
// not nil, the first database is the real one, which the controller only reads, and source holds
// the places of its kinds.
func (r *rehearsal) open(ctx context.Context, source *upgradestate.Namespace) (*stage, error) {
	s := &stage{Stage: r.Backend.Stage(r.from, r.to, source != nil), ended: make(chan error, 1)}
	s.deployment = s.Deployment()
	if _, err := s.deployment.Create(ctx, r.from, r.real.RingSize); err != nil {
		return nil, err
	}
	if source != nil {
		if _, err := s.deployment.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: *source}); err != nil {
			return nil, err
		}
	}
	ctx, s.stop = context.WithCancel(ctx)
	go func() { s.ended <- s.Run(ctx) }()
	return s, nil
}

// close stops the controller and waits for its end.
func (s *stage) close() {
	s.stop()
	<-s.ended //nolint:errcheck // it was stopped, so its error has no meaning
}

// lookEvery is the interval of the progress checks.
const lookEvery = 500 * time.Millisecond

// await waits until done returns true. Meanwhile it applies changes of the real deployment's pace,
// and waives parked groups, so that the rehearsal can continue. It ends early with a verdict if
// nothing advances.
func (r *rehearsal) await(ctx context.Context, s *stage, what string, done func(upgradestate.Deployment) bool) (upgradestate.Deployment, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var seen advance
	moved := time.Now()
	for {
		d, err := s.deployment.Get(ctx)
		if err != nil {
			return d, err
		}
		if done(d) {
			return d, nil
		}
		ps, err := s.deployment.Progress(ctx)
		if err != nil {
			return d, err
		}
		// Only real progress counts, so that endless retries end with a verdict.
		if seen.grows(d, ps, r.report.Parked) {
			moved = time.Now()
		} else if time.Since(moved) >= stallLimit {
			return d, fmt.Errorf("%s: %w for %s: %s", what, errStalled, stallLimit, waitsFor(ps))
		}
		// Both in each round: new groups are parked all the time, and the pace may change.
		if err := r.followPace(ctx, s, d); err != nil {
			return d, err
		}
		if err := r.waiveParked(ctx, s); err != nil {
			return d, err
		}
		r.say(r.progressOf(ctx, s, what))
		select {
		case <-ctx.Done():
			return d, fmt.Errorf("%s: %s: %w", what, waitsFor(ps), ctx.Err())
		case err := <-s.ended:
			s.ended <- err // close reads it again
			if err == nil {
				err = errors.New("the rehearsal's controller has ended")
			}
			return d, err
		case <-tick.C:
		}
	}
}

// followPace copies the pace of the real deployment: an operator who slows it down means the
// rehearsal as well.
func (r *rehearsal) followPace(ctx context.Context, s *stage, d upgradestate.Deployment) error {
	now, err := r.Deployment.Get(ctx)
	if err != nil {
		return err
	}
	p := now.Pace
	if p == d.Pace {
		return nil
	}
	_, err = s.deployment.Apply(ctx, upgradestate.SetPace{
		Paused: &p.Paused, Reason: &p.Reason, MaxRate: &p.MaxRate, MaxSourceLoad: &p.MaxSourceLoad, Window: &p.Window,
	})
	return err
}

// maxExamples bounds the examples in a report.
const maxExamples = 10

// waiveParked counts the parked groups and waives them.
func (r *rehearsal) waiveParked(ctx context.Context, s *stage) error {
	parked, err := s.deployment.ParkedNow(ctx)
	if err != nil {
		return err
	}
	for _, p := range parked {
		if p.Waived {
			continue
		}
		// A parked group would block the rehearsed switch.
		if _, err := s.deployment.Waive(ctx, p.Kind, p.Key); err != nil {
			return fmt.Errorf("go on without %s/%s (%s): %w", p.Kind, p.Key, p.Error, err)
		}
		r.report.Parked++
		r.example("%s/%s: %s", p.Kind, p.Key, p.Error)
		if r.report.Parked >= maxParked {
			return errParked
		}
	}
	return nil
}

func (r *rehearsal) example(format string, args ...any) {
	if len(r.report.Examples) < maxExamples {
		r.report.Examples = append(r.report.Examples, fmt.Sprintf(format, args...))
	}
}

func (r *rehearsal) problem(format string, args ...any) {
	r.report.Problems = append(r.report.Problems, fmt.Sprintf(format, args...))
}

// progressOf adds up the progress of all shards.
func (r *rehearsal) progressOf(ctx context.Context, s *stage, what string) api.Work {
	ps, err := s.deployment.Progress(ctx)
	if err != nil {
		// Progress is only for display, so its error does not end the rehearsal.
		return api.Work{Doing: what + ": progress is unknown: " + err.Error()}
	}
	var copied, total, verified int64
	for _, p := range ps {
		copied, total, verified = copied+p.Copied, total+p.Total, verified+p.Verified
	}
	// The copy is done, so show the comparison's progress instead.
	if total > 0 && copied >= total && verified > 0 {
		return api.Work{Doing: what + ", and compare it", Done: min(verified, total), Total: total}
	}
	return api.Work{Doing: what, Done: copied, Total: total}
}
