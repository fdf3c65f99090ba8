package simulation_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	secretsapi "dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/engine/copies"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/resource/region"
)

var placeNames = []string{"us", "eu", "asia"}

// TestRegions: three regions write, and copy from each other, while networks, databases, servers,
// controllers and the processes that make copies fail. us is upgraded, and eu is upgraded and rolled
// back. In the end each region owns what its clients know, and shows the records of all.
func TestRegions(t *testing.T) {
	eachSeed(t, 6, func(t *testing.T, seed uint64) {
		for _, text := range threeRegions(t, seed, nil) {
			t.Error(text)
		}
	})
}

// plant breaks what copies rest on.
type plant func(copies.Source, copies.Space) (copies.Source, copies.Space)

// TestRegionsFindsPlantedFaults: the oracle of TestRegions sees each of these.
func TestRegionsFindsPlantedFaults(t *testing.T) {
	raced.Leave(t)
	for name, c := range map[string]struct {
		plant plant
		want  string
	}{
		"a copy is written over an owned record": {func(from copies.Source, to copies.Space) (copies.Source, copies.Space) {
			return from, &overwriting{Space: to}
		}, "owns"},
		"a copy counts as written before it is": {func(from copies.Source, to copies.Space) (copies.Source, copies.Space) {
			return from, &early{Space: to}
		}, "shows"},
		"a delete during a partition is lost": {func(from copies.Source, to copies.Space) (copies.Source, copies.Space) {
			k := &keeping{Source: from, Space: to, heard: map[string]bool{}}
			return k, k
		}, "shows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				found := threeRegions(t, 0, c.plant)
				if !slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, c.want) }) {
					t.Errorf("found %v", found)
				}
			})
		})
	}
}

// overwriting writes each copy over the owned record of its name, if there is one.
type overwriting struct{ copies.Space }

func (o *overwriting) Write(ctx context.Context, ms []record.Mutation) error {
	err := o.Space.Write(ctx, ms)
	for _, m := range ms {
		key, _ := m.Key.Name()
		_, name, named := region.OfCopy(key)
		if err != nil || !named || m.Kind == region.StateKind || m.Doc == nil {
			continue
		}
		if _, err := o.Get(ctx, secretsapi.Kind, name); err != nil {
			continue // it is not owned here
		}
		doc, _ := region.WithID(m.Doc, name)
		_ = o.Space.Write(ctx, []record.Mutation{{Kind: secretsapi.Kind, Key: record.StringKey(name), Doc: doc}})
	}
	return err
}

// early acknowledges some copies and does not write them.
type early struct {
	copies.Space
	mu sync.Mutex
	n  int
}

func (e *early) Write(ctx context.Context, ms []record.Mutation) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n += len(ms) - 1; len(ms) > 1 && e.n%3 == 0 {
		ms = ms[:1] // the state of the copies comes first
	}
	return e.Space.Write(ctx, ms)
}

// keeping deletes no copy whose owner's delete it did not hear.
type keeping struct {
	copies.Source
	copies.Space
	mu    sync.Mutex
	heard map[string]bool
}

type keepingStream struct {
	copies.Stream
	k *keeping
}

func (k *keeping) Watch(ctx context.Context) (copies.Stream, error) {
	s, err := k.Source.Watch(ctx)
	return &keepingStream{s, k}, err
}

func (s *keepingStream) Next(ctx context.Context) (copies.Event, error) {
	ev, err := s.Stream.Next(ctx)
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if ev.Doc == nil {
		s.k.heard[ev.Name] = true
	}
	return ev, err
}

func (k *keeping) Write(ctx context.Context, ms []record.Mutation) error {
	k.mu.Lock()
	ms = slices.DeleteFunc(slices.Clone(ms), func(m record.Mutation) bool {
		key, _ := m.Key.Name()
		_, name, _ := region.OfCopy(key)
		return m.Doc == nil && !k.heard[name]
	})
	k.mu.Unlock()
	return k.Space.Write(ctx, ms)
}

// citizen is a client in a region, and the only writer of its secrets. The ledger has them by HOME/ID: two
// regions may create one name at once, and each keeps its own.
type citizen struct {
	p      *place
	places map[string]*place
	ledger *workload.Ledger[string]
	rng    *rand.Rand
	n      int
	live   []string
	failed []string
	done   int
}

func (c *citizen) step(ctx context.Context) {
	c.n++
	id := fmt.Sprintf("%s-%d", c.p.name, c.n)
	switch dice := c.rng.IntN(10); {
	case dice == 0 && c.p.name != "asia":
		id = fmt.Sprintf("twin-%d", c.n/50)
		fallthrough
	case dice < 3 || len(c.live) < 3:
		c.write(ctx, c.p, id, fmt.Sprint(c.n), func() error {
			_, err := c.p.client.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: id, Secret: &secretsv1.Secret{Payload: fmt.Append(nil, c.n)}}))
			return err
		})
	case dice < 5:
		id = c.live[c.rng.IntN(len(c.live))]
		c.write(ctx, c.p, id, "", func() error {
			_, err := c.p.client.DeleteSecret(ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: "projects/p/secrets/" + id}))
			return err
		})
	default:
		id = c.live[c.rng.IntN(len(c.live))]
		through := c.p
		// A twin belongs to the region that gets the request.
		if c.rng.IntN(4) == 0 && !strings.HasPrefix(id, "twin-") {
			through = c.places[placeNames[c.rng.IntN(len(placeNames))]]
		}
		c.write(ctx, through, id, fmt.Sprint(c.n), func() error {
			_, err := through.client.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: "projects/p/secrets/" + id, Payload: fmt.Append(nil, c.n)}}))
			return err
		})
	}
}

// write makes a write. A secret whose state is unknown is not written again.
func (c *citizen) write(ctx context.Context, through *place, id, payload string, call func() error) {
	key := c.p.name + "/" + id
	c.ledger.Begin(key, payload)
	err := call()
	reason, _ := refusal.Of(err)
	code, lives := connect.CodeOf(err), payload != ""
	switch {
	case err == nil:
		c.ledger.Ack(key)
		c.done++
	case reason.Again() || reason == refusal.NotOwner, // after a forwarded one as well
		code == connect.CodeNotFound && through != c.p,                      // its copy has not come yet
		code == connect.CodeAlreadyExists && strings.HasPrefix(id, "twin-"): // the other one was first
		c.ledger.Refuse(key)
		return
	default:
		c.ledger.Unknown(key)
		lives = false
		if code == connect.CodeNotFound || code == connect.CodeAlreadyExists || code == connect.CodeInvalidArgument {
			c.failed = append(c.failed, fmt.Sprintf("a write of %s in %s: %v", key, through.name, err))
		}
	}
	i := slices.Index(c.live, id)
	switch {
	case lives && i < 0:
		c.live = append(c.live, id)
	case !lives && i >= 0:
		c.live = slices.Delete(c.live, i, i+1)
	}
}

// list returns what a region shows or owns, as HOME:PAYLOAD by id.
func (p *place) list(ctx context.Context, owned bool) (map[string]string, error) {
	all := map[string]string{}
	for token := ""; ; {
		req := connect.NewRequest(&secretsv1.ListSecretsRequest{PageSize: 100, PageToken: token})
		if owned {
			req.Header().Set(region.OwnedHeader, "1")
		}
		res, err := p.client.ListSecrets(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, s := range res.Msg.GetSecrets() {
			all[strings.TrimPrefix(s.GetName(), "projects/p/secrets/")] = s.GetHome() + ":" + string(s.GetPayload())
		}
		if token = res.Msg.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

// threeRegions returns what is wrong after a run.
func threeRegions(t *testing.T, seed uint64, plant plant) (found []string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := newWeather(seed)
	places := map[string]*place{}
	for _, name := range placeNames {
		others := slices.DeleteFunc(slices.Clone(placeNames), func(other string) bool { return other == name })
		places[name] = newPlace(ctx, t, name, others, w, plant)
	}
	g := &globe{ctx: ctx, w: w, rng: rand.New(rand.NewPCG(seed, 30)), places: places, copiers: map[string]*copier{}, controllers: map[string]*process{}}
	g.start()
	ledger := workload.New[string]("secret")
	clients, stop := context.WithCancel(ctx)
	defer stop()
	var working sync.WaitGroup
	var citizens []*citizen
	for i, name := range placeNames {
		c := &citizen{p: places[name], places: places, ledger: ledger, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		citizens = append(citizens, c)
		working.Go(func() {
			for clients.Err() == nil {
				c.step(ctx)
				pass(time.Duration(50+c.rng.IntN(100)) * time.Millisecond)
			}
		})
	}
	pass(time.Second)
	w.bad.Store(true)
	var upgrades sync.WaitGroup
	upgrades.Go(func() { places["us"].switchTo(ctx, "v2") })
	upgrades.Go(func() {
		places["eu"].switchTo(ctx, "v2")
		pass(5 * time.Second)
		places["eu"].switchTo(ctx, "v1")
	})
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); {
		g.strike()
	}
	w.bad.Store(false)
	g.heal()
	upgrades.Wait()
	// From here on nothing fails, so nothing that was lost is made good by beginning anew.
	pass(20 * time.Second)
	stop()
	working.Wait()
	for _, c := range citizens {
		found = append(found, c.failed...)
		if c.done < 50 {
			found = append(found, fmt.Sprintf("%s wrote only %d times", c.p.name, c.done))
		}
	}
	found = append(found, g.compare(ledger)...)
	t.Logf("%d faults, %d strikes, %d secrets", w.fired.Load(), g.strikes, ledger.Len())
	cancel()
	g.end()
	return found
}

// compare waits until the copies have come, and returns what is wrong.
func (g *globe) compare(ledger *workload.Ledger[string]) (found []string) {
	seen, owned := workload.Seen{}, map[string]map[string]string{}
	for name, p := range g.places {
		all, err := p.list(g.ctx, true)
		if err != nil {
			return []string{fmt.Sprintf("%s does not list: %v", name, err)}
		}
		owned[name] = all
		for id, state := range all {
			home, payload, _ := strings.Cut(state, ":")
			if home != name {
				found = append(found, fmt.Sprintf("%s owns %s of %s", name, id, home))
			}
			seen.Add(name+"/"+id, payload)
		}
	}
	for _, f := range ledger.Check("its region", seen, func(payload string) string { return payload }) {
		found = append(found, f.Error())
	}
	for name, p := range g.places {
		want := map[string]string{}
		for _, other := range slices.Backward(p.others) {
			maps.Copy(want, owned[other])
		}
		maps.Copy(want, owned[name])
		var shows map[string]string
		for end := time.Now().Add(time.Minute); ; pass(time.Second) {
			var err error
			if shows, err = p.list(g.ctx, false); err == nil && maps.Equal(shows, want) {
				break
			}
			if time.Now().After(end) {
				found = append(found, fmt.Sprintf("%s shows %d secrets, want %d: %v", name, len(shows), len(want), err))
				break
			}
		}
		for _, version := range []string{"v1", "v2"} {
			for key, doc := range p.contents(g.ctx, version) {
				kind, _, _ := strings.Cut(key, "/")
				switch home := homeOf(doc); {
				case doc == "":
				case kind == secretsapi.Kind && home != name:
					found = append(found, fmt.Sprintf("%s owns %s of %q in %s", name, key, home, version))
				case kind == region.CopiesKind(secretsapi.Kind) && home == name:
					found = append(found, fmt.Sprintf("%s has a copy of its own %s in %s", name, key, version))
				}
			}
		}
	}
	return found
}
