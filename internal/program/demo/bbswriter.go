package app

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
)

// bbsWriter is one client of the BBS service. Only it writes its processes. It is used by one
// goroutine.
type bbsWriter struct {
	client *bbsClient
	ledger *ledger
	tally  *tally
	ops    *atomic.Int64 // operation numbers, shared by all clients
	rng    *rand.Rand
	number int

	live  []lrp
	dead  []string // guids that may be created again
	names int
}

// put creates processes until there are n, before traffic starts.
func (w *bbsWriter) put(ctx context.Context, n int) error {
	for len(w.live) < n {
		p := created(w.newGUID(), w.ops.Add(1))
		if err := w.make(ctx, p); err != nil {
			return err
		}
		w.live = append(w.live, p)
	}
	return nil
}

// make creates a process before traffic starts.
func (w *bbsWriter) make(ctx context.Context, p lrp) error {
	w.ledger.Begin(p.guid, p.state())
	if _, err := w.client.call(ctx, w.creation(false, p)); err != nil {
		return fmt.Errorf("create %s: %w", p.guid, err)
	}
	w.ledger.Ack(p.guid)
	return nil
}

func (w *bbsWriter) newGUID() string {
	w.names++
	return guidPrefix(w.number) + strconv.Itoa(w.names)
}

// guidPrefix is the prefix of the guids of one client's processes.
func guidPrefix(client int) string { return fmt.Sprintf("lrp-%d-", client) }

// do makes one write, which was due at the given time. It uses the v1 API, and while v2 is active
// also the v2 API.
func (w *bbsWriter) do(ctx context.Context, due time.Time) {
	v2 := w.rng.IntN(2) == 0 && w.client.newAPI.enter()
	if v2 {
		defer w.client.newAPI.leave()
	}
	op := w.ops.Add(1)
	switch dice := w.rng.IntN(100); {
	case dice < 20 || len(w.live) < 3:
		w.create(ctx, due, op, v2)
	case dice < 35:
		w.remove(ctx, due, v2)
	case dice < 60 && v2:
		w.define(ctx, due, op)
	default:
		w.update(ctx, due, op, v2)
	}
}

// run makes one write and records its outcome.
func (w *bbsWriter) run(ctx context.Context, due time.Time, guid string, v2 bool, next state, send func(ctx context.Context, server int) (http.Header, error)) bool {
	return w.client.write(ctx, w.ledger, w.tally, due, guid, v2, next, send)
}

func (w *bbsWriter) create(ctx context.Context, due time.Time, op int64, v2 bool) {
	var guid string
	if n := len(w.dead); n > 0 && w.rng.IntN(2) == 0 {
		guid, w.dead = w.dead[n-1], w.dead[:n-1]
	} else {
		guid = w.newGUID()
	}
	p := created(guid, op)
	if w.run(ctx, due, guid, v2, p.state(), w.creation(v2, p)) {
		w.live = append(w.live, p)
	}
}

func (w *bbsWriter) creation(v2 bool, p lrp) func(context.Context, int) (http.Header, error) {
	return func(ctx context.Context, s int) (http.Header, error) {
		if v2 {
			return sent(ctx, w.client.v2[s].CreateLRPDeployment, &bbsv2.CreateLRPDeploymentRequest{LrpDeployment: p.v2()})
		}
		return sent(ctx, w.client.v1[s].CreateDesiredLRP, &bbsv1.CreateDesiredLRPRequest{DesiredLrp: p.v1()})
	}
}

func (w *bbsWriter) remove(ctx context.Context, due time.Time, v2 bool) {
	p := taken(w.rng, &w.live)
	if w.run(ctx, due, p.guid, v2, state{}, func(ctx context.Context, s int) (http.Header, error) {
		if v2 {
			return sent(ctx, w.client.v2[s].DeleteLRPDeployment, &bbsv2.DeleteLRPDeploymentRequest{ProcessGuid: p.guid})
		}
		return sent(ctx, w.client.v1[s].DeleteDesiredLRP, &bbsv1.DeleteDesiredLRPRequest{ProcessGuid: p.guid})
	}) {
		w.dead = append(w.dead, p.guid)
	}
}

func (w *bbsWriter) update(ctx context.Context, due time.Time, op int64, v2 bool) {
	p := taken(w.rng, &w.live).updated(op)
	instances, annotation := p.running, p.annotation()
	if w.run(ctx, due, p.guid, v2, p.state(), func(ctx context.Context, s int) (http.Header, error) {
		if v2 {
			return sent(ctx, w.client.v2[s].UpdateLRPDeployment, &bbsv2.UpdateLRPDeploymentRequest{
				ProcessGuid: p.guid, Instances: &instances, Annotation: &annotation, Routes: &bbsv2.Routes{Entries: p.routes()},
			})
		}
		return sent(ctx, w.client.v1[s].UpdateDesiredLRP, &bbsv1.UpdateDesiredLRPRequest{
			ProcessGuid: p.guid, Instances: &instances, Annotation: &annotation, Routes: &bbsv1.Routes{Entries: p.routes()},
		})
	}) {
		w.live = append(w.live, p)
	}
}

// define adds a definition to a process, or activates one that was added before.
func (w *bbsWriter) define(ctx context.Context, due time.Time, op int64) {
	p := taken(w.rng, &w.live)
	id, next := "", p
	// Activate a definition that is waiting, if there is one; otherwise add one.
	for other := range p.definitions {
		if other != p.active {
			id = other
		}
	}
	add := id == ""
	if add {
		id = fmt.Sprintf("definition-%d", op)
		next = p.withDefinition(id, op)
	} else {
		next = p.activated(id)
	}
	if w.run(ctx, due, p.guid, true, next.state(), func(ctx context.Context, s int) (http.Header, error) {
		if add {
			return sent(ctx, w.client.v2[s].AddDefinition, &bbsv2.AddDefinitionRequest{
				ProcessGuid: p.guid, DefinitionId: id, Definition: definitionV2(op),
			})
		}
		return sent(ctx, w.client.v2[s].ActivateDefinition, &bbsv2.ActivateDefinitionRequest{
			ProcessGuid: p.guid, DefinitionId: id,
		})
	}) {
		w.live = append(w.live, next)
	}
}

// bbsClient calls the BBS service.
type bbsClient struct {
	*service
	v1 []bbsv1connect.DesiredLRPServiceClient
	v2 []bbsv2connect.LRPDeploymentServiceClient
}

func newBBSClient(h *http.Client, s *service, servers []string) *bbsClient {
	return &bbsClient{service: s, v1: clientsOf(h, servers, bbsv1connect.NewDesiredLRPServiceClient), v2: clientsOf(h, servers, bbsv2connect.NewLRPDeploymentServiceClient)}
}

// read reads one process through one of the APIs.
func (c *bbsClient) read(ctx context.Context, l *ledger, t *tally, guid string, v2 bool) {
	c.readOne(ctx, l, t, guid, v2, func(ctx context.Context, s int) (string, http.Header, error) {
		if v2 {
			return asked(ctx, c.v2[s].GetLRPDeployment, &bbsv2.GetLRPDeploymentRequest{ProcessGuid: guid}, func(res *bbsv2.GetLRPDeploymentResponse) string { return printV2(res.GetLrpDeployment()) })
		}
		return asked(ctx, c.v1[s].GetDesiredLRP, &bbsv1.GetDesiredLRPRequest{ProcessGuid: guid}, func(res *bbsv1.GetDesiredLRPResponse) string { return printV1(res.GetDesiredLrp()) })
	})
}
