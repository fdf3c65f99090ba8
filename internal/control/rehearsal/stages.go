package rehearsal

import (
	"context"
	"fmt"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Ids of the rehearsed upgrades. Their coordination store has no others.
const (
	idCopy = "rehearsal-copy"
	idOver = "rehearsal-over"
	idBack = "rehearsal-back"
)

// copyAll copies everything into a scratch database, follows changes meanwhile, and compares. It
// only reads the source, so it ends where the switch would begin.
func (r *rehearsal) copyAll(ctx context.Context) error {
	if err := r.claim(ctx, r.to); err != nil {
		return err
	}
	source, _ := r.real.Namespace(r.from)
	// The stage must not change the real collections' TTL indexes.
	for i := range source.Kinds {
		source.Kinds[i].Expiry = nil
	}
	source.Identity = upgradestate.Identity{} // the real deployment keeps its own marks
	s, err := r.open(ctx, &source)
	if err != nil {
		return err
	}
	defer s.close()
	// Hold: the switch would need to change the source.
	if _, err := r.begin(ctx, s, idCopy, r.to, upgradestate.Policy{Hold: true}); err != nil {
		return err
	}
	start := time.Now()
	d, err := r.await(ctx, s, "copy everything", upgradestate.AllReady)
	if err != nil {
		return err
	}
	r.report.CopyMillis = time.Since(start).Milliseconds()
	ps, err := s.deployment.Progress(ctx)
	if err != nil {
		return err
	}
	for _, p := range ps {
		r.report.Copied += p.Copied
	}
	// The engine has compared while it followed; this compares once more as a whole.
	rep, err := r.compare(ctx, s, "compare everything")
	if err != nil {
		return err
	}
	r.report.Compared, r.report.Mismatched = rep.Compared, rep.Mismatched
	for _, tok := range syncer.Tokens(d, r.to) {
		size, err := s.Database(r.to).Size(ctx, tok)
		if err != nil {
			return err
		}
		r.report.Bytes += size.Bytes
	}
	return nil
}

// begin waits until the stage announces the upgrade, then begins it.
func (r *rehearsal) begin(ctx context.Context, s *stage, id, to string, policy upgradestate.Policy) (upgradestate.Deployment, error) {
	_, err := r.await(ctx, s, "prepare for "+to, func(d upgradestate.Deployment) bool {
		for _, a := range d.Available {
			if a.TargetVersion == to {
				return true
			}
		}
		return false
	})
	if err != nil {
		return upgradestate.Deployment{}, err
	}
	return s.deployment.Apply(ctx, upgradestate.Begin{ID: id, TargetVersion: to, Policy: policy})
}

// compare compares all records and adds examples of differences to the report.
func (r *rehearsal) compare(ctx context.Context, s *stage, what string) (verify.Report, error) {
	rep, err := s.Verify(ctx, func(p verify.Report) { r.say(api.Work{Doing: what, Done: p.Scanned, Total: p.Total}) })
	for _, name := range rep.Examples {
		r.example("%s differs", name)
	}
	return rep, err
}

// switchSample sends a sample of the records through the switch and back, between two scratch
// databases of its own.
func (r *rehearsal) switchSample(ctx context.Context, sample int) error {
	// Claim both again: the copy of everything may have filled the target's scratch database.
	if err := r.claim(ctx, r.from); err != nil {
		return err
	}
	if err := r.claim(ctx, r.to); err != nil {
		return err
	}
	if err := r.fill(ctx, sample); err != nil {
		return fmt.Errorf("take a sample: %w", err)
	}
	s, err := r.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.close()
	if err := r.switchTo(ctx, s, idOver, r.to); err != nil {
		return err
	}
	// Digests from before the rollback; only rewritten groups may differ after it.
	before, err := r.contents(ctx, s, r.from)
	if err != nil {
		return err
	}
	// Without writes in the new version the rollback would have no changes to apply.
	rewritten, err := r.rewrite(ctx, s)
	if err != nil {
		return fmt.Errorf("rewrite records of %s: %w", r.to, err)
	}
	if err := r.switchTo(ctx, s, idBack, r.from); err != nil {
		return err
	}
	after, err := r.contents(ctx, s, r.from)
	if err != nil {
		return err
	}
	// The losses count for the switch back.
	back := r.report.Switches[len(r.report.Switches)-1]
	for id, was := range before {
		if is, there := after[id]; !rewritten[id.group] && (!there || is != was) {
			back.Mismatched++
			r.example("%s %s differs after it was migrated there and back", id.kind, id.key)
		}
	}
	return nil
}

// member is a record and its group. Both versions use the same group id.
type member struct {
	group transform.GroupID
	kind  string
	key   record.Key
}

// switchTo rehearses one switch and adds it to the report.
func (r *rehearsal) switchTo(ctx context.Context, s *stage, id, to string) error {
	d, err := r.begin(ctx, s, id, to, upgradestate.Policy{})
	if err != nil {
		return err
	}
	from := d.CurrentVersion
	d, err = r.await(ctx, s, "switch a sample to "+to, func(d upgradestate.Deployment) bool {
		_, places := upgradestate.WritePlaces(d) // not before fixed-name kinds have their own names
		return d.Upgrade == nil && len(places) > 0
	})
	if err != nil {
		return err
	}
	last := d.LastSwitch
	// The upgrade ended without a switch. The history holds the reason.
	if last == nil || last.ID != id {
		why := "it was aborted"
		for _, e := range d.History {
			if e.ID == id && e.Outcome != "" {
				why = e.Outcome
			}
		}
		return fmt.Errorf("the switch from %s to %s was not made: %s", from, to, why)
	}
	out := &pb.Rehearsal{From: from, To: to, Millis: map[string]int32{}}
	for step, ms := range last.Millis {
		// The API has 32 bits for a duration.
		out.Millis[step] = int32(min(ms, 1<<30))
		out.PauseMillis += ms
	}
	rep, err := r.compare(ctx, s, "compare the sample")
	if err != nil {
		return err
	}
	out.Mismatched = rep.Mismatched
	r.report.Switches = append(r.report.Switches, out)
	return nil
}
