package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/bbs"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/upgradestate"
)

// process is a process of the BBS service as its one writer knows it: the numbers of the
// operations that created and last changed it, which all of its fields follow from.
type process struct {
	guid          string
	made, changed int64
}

// state is how the ledger knows it.
func (p process) state() string { return fmt.Sprintf("operation %d of %d", p.changed, p.made) }

func (p process) annotation() string { return fmt.Sprintf("operation %d", p.changed) }

func (p process) routes() map[string]string { return map[string]string{"router": p.annotation()} }

func (p process) v1() *bbsv1.DesiredLRP {
	return &bbsv1.DesiredLRP{
		ProcessGuid: p.guid, Domain: "it", Instances: int32(p.changed % 97), Routes: p.routes(), Annotation: p.annotation(),
		Definition: &bbsv1.Definition{Rootfs: "docker:///busybox", LogGuid: fmt.Sprint(p.made), Ports: []uint32{8080}},
	}
}

// stateOf is a process as an API shows it; anything inconsistent is part of the text.
func stateOf(annotation, logGUID string, instances int32, routes map[string]string) string {
	state := annotation + " of " + logGUID
	var n int64
	if _, err := fmt.Sscanf(annotation, "operation %d", &n); err != nil || int32(n%97) != instances || routes["router"] != annotation {
		state += fmt.Sprintf(" with %d instances and routes %v", instances, routes)
	}
	return state
}

func stateV1(d *bbsv1.DesiredLRP) string {
	return stateOf(d.GetAnnotation(), d.GetDefinition().GetLogGuid(), d.GetInstances(), d.GetRoutes())
}

func stateV2(d *bbsv2.LRPDeployment) string {
	s := stateOf(d.GetAnnotation(), d.GetDefinitions()[d.GetActiveDefinitionId()].GetLogGuid(), d.GetInstances(), d.GetRoutes())
	if len(d.GetDefinitions()) != 1 {
		s += fmt.Sprintf(" with %d definitions", len(d.GetDefinitions()))
	}
	return s
}

// bbsClient is a client of the BBS service at some servers.
type bbsClient struct {
	v1 []bbsv1connect.DesiredLRPServiceClient
	v2 []bbsv2connect.LRPDeploymentServiceClient
}

func newBBSClient(h *http.Client, servers ...*child) *bbsClient {
	c := &bbsClient{}
	for _, s := range servers {
		api, _ := s.addresses()
		c.v1 = append(c.v1, bbsv1connect.NewDesiredLRPServiceClient(h, "http://"+api))
		c.v2 = append(c.v2, bbsv2connect.NewLRPDeploymentServiceClient(h, "http://"+api))
	}
	return c
}

// call makes a call again as long as the server asks for that, having done nothing. It
// returns the version that answered.
func call[T any](ctx context.Context, send func(context.Context) (*connect.Response[T], error)) (*T, string, error) {
	for {
		res, err := send(ctx)
		if err == nil {
			return res.Msg, res.Header().Get(app.VersionHeader), nil
		}
		var ce *connect.Error
		if !errors.As(err, &ce) || ce.Meta().Get("Retry-After") == "" {
			return nil, "", err
		}
		if err := pauseFor(ctx, 50*time.Millisecond); err != nil {
			return nil, "", err
		}
	}
}

// pauseFor is what a client does between two calls.
func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// bbsWriter is the only one that writes its processes, through the v1 API, which both
// versions serve.
type bbsWriter struct {
	client *bbsClient
	ledger *ledger
	rng    *rand.Rand
	number int
	op     int64
	live   []process
	dead   []string
}

func (w *bbsWriter) api() bbsv1connect.DesiredLRPServiceClient {
	return w.client.v1[w.rng.IntN(len(w.client.v1))]
}

// step is one operation: create (also again what was deleted), update, delete, or read.
func (w *bbsWriter) step(ctx context.Context) {
	w.op++
	switch dice := w.rng.IntN(10); {
	case dice < 2 || len(w.live) < 3:
		w.create(ctx)
	case dice < 4:
		w.remove(ctx)
	case dice < 8:
		w.update(ctx)
	default:
		w.read(ctx)
	}
}

// write notes what became of a write. A process whose state is unknown is not touched
// again, since nobody knows what a further write would need.
func write[T any](ctx context.Context, w *bbsWriter, guid, next string, send func(context.Context) (*connect.Response[T], error)) bool {
	w.ledger.Begin(guid, next)
	sent := time.Now()
	_, version, err := call(ctx, send)
	if err != nil {
		w.ledger.Unknown(guid)
		if ctx.Err() == nil {
			w.ledger.fail("write %s: %v", guid, err)
		}
		return false
	}
	w.ledger.ack(guid, ack{sent: sent, acked: time.Now(), version: version})
	return true
}

func (w *bbsWriter) create(ctx context.Context) {
	guid := fmt.Sprintf("process-%d-%d", w.number, w.op)
	if n := len(w.dead); n > 0 && w.rng.IntN(2) == 0 {
		guid, w.dead = w.dead[n-1], w.dead[:n-1]
	}
	p := process{guid: guid, made: w.op, changed: w.op}
	if write(ctx, w, guid, p.state(), func(ctx context.Context) (*connect.Response[bbsv1.CreateDesiredLRPResponse], error) {
		return w.api().CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: p.v1()}))
	}) {
		w.live = append(w.live, p)
	}
}

// take removes a random process from the live ones.
func (w *bbsWriter) take() process {
	i := w.rng.IntN(len(w.live))
	p := w.live[i]
	w.live[i] = w.live[len(w.live)-1]
	w.live = w.live[:len(w.live)-1]
	return p
}

func (w *bbsWriter) remove(ctx context.Context) {
	p := w.take()
	if write(ctx, w, p.guid, "", func(ctx context.Context) (*connect.Response[bbsv1.DeleteDesiredLRPResponse], error) {
		return w.api().DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: p.guid}))
	}) {
		w.dead = append(w.dead, p.guid)
	}
}

func (w *bbsWriter) update(ctx context.Context) {
	p := w.take()
	p.changed = w.op
	if write(ctx, w, p.guid, p.state(), func(ctx context.Context) (*connect.Response[bbsv1.UpdateDesiredLRPResponse], error) {
		return w.api().UpdateDesiredLRP(ctx, connect.NewRequest(updateOf(p)))
	}) {
		w.live = append(w.live, p)
	}
}

func updateOf(p process) *bbsv1.UpdateDesiredLRPRequest {
	d := p.v1()
	return &bbsv1.UpdateDesiredLRPRequest{
		ProcessGuid: p.guid, Instances: &d.Instances, Annotation: &d.Annotation, Routes: &bbsv1.Routes{Entries: d.Routes},
	}
}

func (w *bbsWriter) read(ctx context.Context) {
	p := w.live[w.rng.IntN(len(w.live))]
	reading := w.ledger.Read(p.guid)
	msg, _, err := call(ctx, func(ctx context.Context) (*connect.Response[bbsv1.GetDesiredLRPResponse], error) {
		return w.api().GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: p.guid}))
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		w.ledger.fail("read %s: %v", p.guid, err)
	default:
		w.ledger.read(reading, stateV1(msg.GetDesiredLrp()))
	}
}

// list sees all processes through both APIs of a server.
func (c *bbsClient) list(ctx context.Context, server int) (v1, v2 workload.Seen, err error) {
	v1, v2 = workload.Seen{}, workload.Seen{}
	for page := ""; ; {
		res, err := c.v1[server].ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{PageSize: 500, PageToken: page}))
		if err != nil {
			return nil, nil, err
		}
		for _, d := range res.Msg.GetDesiredLrps() {
			v1.Add(d.GetProcessGuid(), stateV1(d))
		}
		if page = res.Msg.GetNextPageToken(); page == "" {
			break
		}
	}
	for page := ""; ; {
		res, err := c.v2[server].ListLRPDeployments(ctx, connect.NewRequest(&bbsv2.ListLRPDeploymentsRequest{PageSize: 500, PageToken: page}))
		if err != nil {
			return nil, nil, err
		}
		for _, d := range res.Msg.GetLrpDeployments() {
			v2.Add(d.GetProcessGuid(), stateV2(d))
		}
		if page = res.Msg.GetNextPageToken(); page == "" {
			return v1, v2, nil
		}
	}
}

// rawProcesses sees the new version's processes past everything that is ours.
func (s *system) rawProcesses(ctx context.Context, d upgradestate.Deployment) (workload.Seen, error) {
	type doc struct {
		ID         string            `bson:"_id"`
		Annotation string            `bson:"annotation"`
		Instances  int32             `bson:"instances"`
		Routes     map[string]string `bson:"routes"`
		Active     string            `bson:"active_definition_id"`
		Definition struct {
			LogGUID string `bson:"log_guid"`
		} `bson:"definition"`
	}
	live := func(kind string) ([]doc, error) {
		ns, _ := d.Namespace("v2")
		k, _ := ns.Kind(kind)
		cursor, err := s.db["v2"].Collection(k.Physical).Find(ctx, bson.D{{Key: "_dbc.x", Value: bson.D{{Key: "$ne", Value: true}}}})
		if err != nil {
			return nil, err
		}
		var docs []doc
		return docs, cursor.All(ctx, &docs)
	}
	definitions, err := live(bbs.KindDefinitions)
	if err != nil {
		return nil, err
	}
	byGUID := map[string]map[string]string{}
	for _, def := range definitions {
		guid, id, _ := strings.Cut(def.ID, "/")
		if byGUID[guid] == nil {
			byGUID[guid] = map[string]string{}
		}
		byGUID[guid][id] = def.Definition.LogGUID
	}
	deployments, err := live(bbs.KindDeployments)
	if err != nil {
		return nil, err
	}
	seen := workload.Seen{}
	for _, p := range deployments {
		state := stateOf(p.Annotation, byGUID[p.ID][p.Active], p.Instances, p.Routes)
		if n := len(byGUID[p.ID]); n != 1 {
			state += fmt.Sprintf(" with %d definitions", n)
		}
		seen.Add(p.ID, state)
		delete(byGUID, p.ID)
	}
	for guid, defs := range byGUID {
		seen.Add("definitions of "+guid, fmt.Sprint(defs))
	}
	return seen, nil
}
