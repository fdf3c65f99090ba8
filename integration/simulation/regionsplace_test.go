package simulation_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	secretsapi "dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	"dbcontroller.dev/integration/regions"
	"dbcontroller.dev/internal/engine/copies"
	serverapp "dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// The regions of the simulation run the service secrets as servers do: its handlers in both versions,
// its watches, and followers of the other regions' APIs. Its own are the network and the choice of the
// process that follows.

// place is a region.
type place struct {
	*system
	name    string
	others  []string
	service serverapp.Service
	weather *weather
	wires   map[string]*wire // to other regions
	client  secretsv1connect.SecretServiceClient
	plant   plant

	mu     sync.Mutex
	api    http.Handler // of the server; nil: none runs
	alive  context.Context
	server *process
	end    func()
}

// secretsRegistry is what controllers know of the service.
func secretsRegistry() *transform.Registry {
	r := transform.NewRegistry("secrets")
	for _, v := range []string{"v1", "v2"} {
		if err := r.DeclareLocal(v, record.KindSpec{Name: region.CopiesKind(secretsapi.Kind)}, record.KindSpec{Name: region.StateKind}); err != nil {
			panic(err)
		}
	}
	if err := r.Add("v1", "v2", secretsapi.Specs()...); err != nil {
		panic(err)
	}
	return r
}

// newPlace founds a region. Its wires are laid later.
func newPlace(ctx context.Context, t *testing.T, name string, others []string, w *weather, plant plant) *place {
	p := &place{name: name, others: others, service: regions.Service().Server(), weather: w, wires: map[string]*wire{}, plant: plant}
	p.system = newSystemOf(ctx, t, memory(), secretsRegistry(), func(version string, views map[string]*vrunner.View) vrunner.Stack {
		return p.service.Stack(version, views, serverapp.Regions{Name: name, Others: others})
	})
	p.quiet()
	p.forward = p.send
	p.client = secretsv1connect.NewSecretServiceClient(&http.Client{Transport: &wire{to: p}}, "http://"+name)
	return p
}

// serve starts the server.
func (p *place) serve(ctx context.Context, id string) {
	runner, server := p.system.server(ctx, id, func(_ string, c record.Client) record.Client { return faultstore.WrapClient(c, p.weather.of(id)) })
	server.conn.OnCommit(p.weather.commits)
	mux := http.NewServeMux()
	mux.Handle("/", runner)
	resource.MountWatches(mux, runner, secretsapi.Services())
	alive, end := context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.api, p.alive, p.server, p.end = mux, alive, server, end
}

// die kills the server.
func (p *place) die() {
	p.mu.Lock()
	server, end := p.server, p.end
	p.api = nil
	p.mu.Unlock()
	end()
	server.kill()
}

// send forwards a write to its owner.
func (p *place) send(w http.ResponseWriter, req *http.Request, body []byte, region string) bool {
	if p.wires[region] == nil || req.Header.Get(serverapp.ForwardedHeader) != "" {
		return false
	}
	out := req.Clone(req.Context())
	out.Header.Set(serverapp.ForwardedHeader, p.name)
	out.Body = io.NopCloser(bytes.NewReader(body))
	res, err := p.wires[region].RoundTrip(out)
	var answer []byte
	if err == nil {
		answer, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	if err != nil {
		refusal.Write(w, req, refusal.New(refusal.OutcomeUnknown, err))
		return true
	}
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(answer)
	return true
}

// follow makes copies in the namespaces of both versions until ctx ends, as the process id.
func (p *place) follow(ctx context.Context, id string) (ended func()) {
	var all sync.WaitGroup
	for _, version := range []string{"v1", "v2"} {
		k := p.service.Copied[version][secretsapi.Kind]
		for _, other := range p.others {
			var space copies.Space = &placeSpace{p.system, version, faultstore.WrapClient(p.db[version], p.weather.of(id))}
			var source copies.Source = copies.NewOwner(&http.Client{Transport: p.wires[other]}, "http://"+other, k.Method, k.Read)
			if p.plant != nil {
				source, space = p.plant(source, space)
			}
			f := copies.New(copies.Config{Kind: secretsapi.Kind, Region: other, Source: source, Space: space, Decl: k.Kind, Log: slog.New(slog.DiscardHandler)})
			all.Go(func() {
				for ctx.Err() == nil {
					if err := f.Run(ctx); ctx.Err() == nil && !errors.Is(err, copies.ErrOutdated) {
						p.t.Errorf("the copies of %s in %s end with %v", other, p.name, err)
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				}
			})
		}
	}
	return all.Wait
}

// placeSpace is the namespace of a version, under its names at the moment.
type placeSpace struct {
	s       *system
	version string
	client  record.Client
}

func (p *placeSpace) tokens(ctx context.Context, kinds ...string) (record.Tokens, error) {
	d, err := p.s.admin.Get(ctx)
	if err != nil {
		return nil, err
	}
	all, toks := upgradestate.EnginePlaces(d, p.version), record.Tokens{}
	for _, kind := range kinds {
		if len(all[kind]) == 0 {
			return nil, record.ErrFenced // it is not there yet
		}
		at := all[kind][0]
		toks[kind] = record.Token{Kind: at.Kind, Name: at.Name, ID: at.ID}
	}
	return toks, nil
}

func (p *placeSpace) Get(ctx context.Context, kind, key string) (record.Record, error) {
	toks, err := p.tokens(ctx, kind)
	if err != nil {
		return record.Record{}, err
	}
	return p.client.Get(ctx, toks[kind], record.StringKey(key))
}

func (p *placeSpace) Names(ctx context.Context, kind string, of []string) (names []string, err error) {
	toks, err := p.tokens(ctx, kind)
	if err != nil {
		return nil, err
	}
	var sels []record.Selector
	for _, name := range of {
		sels = append(sels, record.Selector{Kind: kind, Key: record.StringKey(name)})
	}
	recs, err := p.client.Select(ctx, record.SelectRequest{Tokens: toks, Select: sels, AsList: true})
	for _, rec := range recs {
		name, _ := rec.Key.Name()
		names = append(names, name)
	}
	return names, err
}

func (p *placeSpace) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) ([]record.Record, bool, error) {
	toks, err := p.tokens(ctx, kind)
	if err != nil {
		return nil, false, err
	}
	more := false
	recs, err := p.client.List(ctx, record.ListRequest{Token: toks[kind], Prefix: prefix, After: after, Limit: limit, Bytes: bytes, Cut: &more})
	return recs, more || len(recs) == limit, err
}

func (p *placeSpace) Write(ctx context.Context, ms []record.Mutation) error {
	var kinds []string
	for _, m := range ms {
		kinds = append(kinds, m.Kind)
	}
	toks, err := p.tokens(ctx, kinds...)
	if err != nil {
		return err
	}
	return p.client.Write(ctx, toks, ms)
}

// homeOf returns the region in a document.
func homeOf(doc string) string {
	var d struct {
		Home string `bson:"home"`
	}
	if err := bson.Unmarshal([]byte(doc), &d); err != nil {
		return err.Error()
	}
	return d.Home
}
