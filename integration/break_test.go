package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// breakPoint is a place at which a controller stands still, having told its parent.
type breakPoint struct {
	At   string
	N    int  // how often, or over how many kinds, see the places
	Back bool // the source of the fences is v2
}

// Places of a break point. What a controller does elsewhere goes on, until its parent
// kills it.
const (
	// atLoad: the Load of the N-th page of the application's collection was done and is
	// not known to be. Further ones are not sent.
	atLoad = "load"
	// atApply: the N-th Apply since the parent armed it is about to be sent.
	atApply = "apply"
	// beforeFence: a fence of the source is announced and about to be sent.
	beforeFence = "before the fence"
	// afterFence: the fences of N source kinds have returned; none of it is confirmed in
	// the record.
	afterFence = "after the fence"
	// beforeFlip: the last renames of N source kinds have returned, likewise. Those whose
	// fence hid them have no last rename.
	beforeFlip = "before the flip"
)

// breaker makes a controller's namespaces stand still at a place.
type breaker struct {
	point breakPoint
	tell  func(event)

	mu     sync.Mutex
	armed  bool
	pages  map[string]bool // loaded, by their first group
	applys int
	fences map[string]int // sent and not failed, by source kind
	done   map[string]int // returned, by place
	stands bool
	goOn   chan struct{} // closed when the parent releases it
}

func newBreaker(p breakPoint, tell func(event)) *breaker {
	return &breaker{point: p, tell: tell, pages: map[string]bool{}, fences: map[string]int{}, done: map[string]int{}, goOn: make(chan struct{})}
}

func (b *breaker) arm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = true
}

// wrap is controller.Options.Wrap.
func (b *breaker) wrap(version string, ns record.Namespace) record.Namespace {
	return &breaking{Namespace: ns, breaker: b, source: (version == "v2") == b.point.Back}
}

// reached tells the parent, once. b.mu is held.
func (b *breaker) reached() {
	if !b.stands {
		b.stands = true
		b.tell(event{Reached: b.point.At})
	}
}

// stand is what happens at a break point: nothing, whatever a context says, until the
// parent releases it, if it does.
func (b *breaker) stand() { <-b.goOn }

// breaking is a namespace with a break point.
type breaking struct {
	record.Namespace
	breaker *breaker
	source  bool
}

func (ns *breaking) Load(ctx context.Context, batch record.Batch) ([]record.Result, error) {
	b := ns.breaker
	if batch.Groups[0].Writes[0].Kind != packagesKind {
		return ns.Namespace.Load(ctx, batch)
	}
	if b.standsAt(atLoad) {
		b.stand()
	}
	results, err := ns.Namespace.Load(ctx, batch)
	if err != nil {
		return results, err
	}
	// A page whose groups were changed meanwhile is loaded again; it counts once.
	b.mu.Lock()
	if page := batch.Groups[0].Group; !b.pages[page] {
		b.pages[page] = true
		b.tell(event{Loaded: len(batch.Groups)})
	}
	there := b.point.At == atLoad && len(b.pages) >= b.point.N
	if there {
		b.reached()
	}
	b.mu.Unlock()
	if there {
		b.stand()
	}
	return results, nil
}

func (b *breaker) standsAt(place string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stands && b.point.At == place
}

func (ns *breaking) Apply(ctx context.Context, batch record.Batch) ([]record.Result, error) {
	b := ns.breaker
	b.mu.Lock()
	if b.armed && b.point.At == atApply {
		if b.applys++; b.applys >= b.point.N {
			b.reached()
		}
	}
	b.mu.Unlock()
	if !b.standsAt(atApply) {
		return ns.Namespace.Apply(ctx, batch)
	}
	b.stand()
	// A process that was stopped sends late, whatever its deadline was.
	results, err := ns.Namespace.Apply(context.WithoutCancel(ctx), batch)
	b.tell(event{Late: fmt.Sprint(err), Fenced: errors.Is(err, record.ErrFenced)})
	return results, err
}

// Fence stands still around the first fence of each source kind, or around its second,
// which is the last rename of a switch.
func (ns *breaking) Fence(ctx context.Context, f record.Fence) error {
	b := ns.breaker
	if !ns.source {
		return ns.Namespace.Fence(ctx, f)
	}
	kind := f.Token.Kind
	b.mu.Lock()
	b.fences[kind]++
	nth := b.fences[kind]
	if nth == 1 && b.point.At == beforeFence {
		b.reached()
	}
	b.mu.Unlock()
	if b.standsAt(beforeFence) {
		b.stand()
	}
	err := ns.Namespace.Fence(ctx, f)
	b.mu.Lock()
	place := map[int]string{1: afterFence, 2: beforeFlip}[nth]
	if err != nil {
		b.fences[kind]-- // it will be tried again
	} else if b.done[place]++; b.point.At == place && b.done[place] >= b.point.N {
		b.reached()
	}
	b.mu.Unlock()
	if err == nil && place != "" && b.point.At == place {
		b.stand()
	}
	return err
}

// stepper is a coordination store. Once its process has taken a switch to another step, it
// tells that to its parent and stands still until it may go on: what the step asks for is
// not done yet, and everything else in the process goes on.
type stepper struct {
	coord.Store
	stage
	goOn chan struct{}
}

func newStepper(s stage) *stepper {
	return &stepper{Store: s.etcd, stage: s, goOn: make(chan struct{})}
}

// Commit implements coord.Store.
func (s *stepper) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	if !s.Steps {
		return s.Store.Commit(ctx, conditions, ops)
	}
	step, before := upgradestate.StepNone, upgradestate.StepNone
	for _, op := range ops {
		if step = stepOf(op.Value); step == upgradestate.StepNone {
			continue
		}
		// A commit that succeeds replaced just this one.
		if now, err := s.Get(ctx, op.Key); err == nil {
			before = stepOf(now.Value)
		}
		break
	}
	revision, err := s.Store.Commit(ctx, conditions, ops)
	if err == nil && step != before && step != upgradestate.StepNone {
		s.tell(event{Reached: string(step)})
		<-s.goOn // closed: at once
	}
	return revision, err
}

// stepOf is the step of the switch that a value says runs, if it is a Deployment.
func stepOf(value []byte) upgradestate.Step {
	var d upgradestate.Deployment
	if json.Unmarshal(value, &d) != nil || d.Upgrade == nil {
		return upgradestate.StepNone
	}
	return d.Upgrade.Step
}
