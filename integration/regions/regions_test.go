package regions_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/refusal"
)

// create makes a secret in a region by its own v1 API.
func (r *region) create(id, payload string) error {
	_, err := r.v1.CreateSecret(r.ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: id, Secret: &secretsv1.Secret{Payload: []byte(payload)}}))
	return err
}

// update changes a secret by the v1 API of a region, wherever the secret is.
func (r *region) update(id, payload string) (*secretsv1.Secret, error) {
	res, err := r.v1.UpdateSecret(r.ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: "projects/p/secrets/" + id, Payload: []byte(payload)}}))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetSecret(), nil
}

// secrets returns what a region lists, by small pages, as HOME:PAYLOAD by id.
func (r *region) secrets() (map[string]string, error) {
	all := map[string]string{}
	req := &secretsv1.ListSecretsRequest{PageSize: 3} // many pages of merged lists
	last := ""
	for {
		res, err := r.v1.ListSecrets(r.ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		for _, s := range res.Msg.GetSecrets() {
			if s.GetName() <= last {
				return nil, fmt.Errorf("%s is listed after %s", s.GetName(), last)
			}
			last = s.GetName()
			all[strings.TrimPrefix(s.GetName(), "projects/p/secrets/")] = s.GetHome() + ":" + string(s.GetPayload())
		}
		if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
			return all, nil
		}
	}
}

// converge waits until all regions list the same secrets, those of want.
func (w *world) converge(what string, want map[string]string, in ...string) {
	w.t.Helper()
	for _, name := range in {
		w.eventually(what+": region "+name+" has everything", func() error {
			got, err := w.regions[name].secrets()
			if err == nil && !maps.Equal(got, want) {
				err = fmt.Errorf("it lists %d secrets, %v; want %d, %v", len(got), got, len(want), want)
			}
			return err
		})
	}
}

// count returns the number of documents in the collections of a kind.
func (r *region) count(version, kind string, filter bson.D) (n int64) {
	r.t.Helper()
	names, err := r.dbs[version].ListCollectionNames(r.ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: `^` + kind + `\.n[0-9]+$`}}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range names {
		some, err := r.dbs[version].Collection(name).CountDocuments(r.ctx, filter)
		if err != nil {
			r.t.Fatal(err)
		}
		n += some
	}
	return n
}

// plant inserts a document into the copies of a version.
func (r *region) plant(version string, doc bson.D) {
	r.t.Helper()
	names, err := r.dbs[version].ListCollectionNames(r.ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: `^secrets_copies\.n[0-9]+$`}}})
	if err != nil || len(names) != 1 {
		r.t.Fatalf("copies are in %v, %v", names, err)
	}
	if _, err := r.dbs[version].Collection(names[0]).InsertOne(r.ctx, doc); err != nil {
		r.t.Fatal(err)
	}
}

// away waits until operators see that a region is away.
func (r *region) away(region string, versions ...string) {
	r.t.Helper()
	r.eventually(region+" is away", func() error {
		text, err := r.get()
		for _, version := range versions {
			if err == nil && !strings.Contains(text, fmt.Sprintf("secrets of region %s in %s: perhaps outdated since ", region, version)) {
				err = fmt.Errorf("%s", text)
			}
		}
		return err
	})
}

func moreThan(n *atomic.Int64, least int64) func() error {
	return func() error {
		if now := n.Load(); now < least {
			return fmt.Errorf("%d of %d", now, least)
		}
		return nil
	}
}

// writers returns the number of writers of each region, each of which writes up to 50 times a second.
// DBCONTROLLER_REGIONS=4 makes it larger.
func writers(t *testing.T) int {
	t.Helper()
	text := os.Getenv("DBCONTROLLER_REGIONS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRegions: three regions own secrets and show copies of the others'. One upgrades first, is cut
// off and rolls back, while all write. Copies converge, nothing is lost, owned twice or overwritten.
func TestRegions(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute) // a hang fails here, and not a slow machine
	defer cancel()
	w := start(ctx, t, "  forward: true\n")
	var mu sync.Mutex
	want := map[string]string{}
	for _, name := range names {
		for i := range 5 {
			id := fmt.Sprintf("s%d-%s", i, name)
			if err := w.regions[name].create(id, "first"); err != nil {
				t.Fatal(err)
			}
			want[id] = name + ":first"
		}
		for i := range writers(t) {
			id := fmt.Sprintf("w%d-%s", i, name)
			if err := w.regions[name].create(id, "first"); err != nil {
				t.Fatal(err)
			}
			want[id] = name + ":first"
		}
	}
	w.converge("at the start", want, names...)
	us, eu := w.regions["us"], w.regions["eu"]

	// A write of a copy goes to its owner and comes back.
	changed, err := us.update("s0-eu", "from us")
	if err != nil || changed.GetHome() != "eu" {
		t.Fatalf("a forwarded write: %v, %v", changed, err)
	}
	want["s0-eu"] = "eu:from us"
	if _, err := us.v1.DeleteSecret(ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: "projects/p/secrets/s1-eu"})); err != nil {
		t.Fatal(err)
	}
	delete(want, "s1-eu")
	w.converge("after forwarded writes", want, names...)
	// A name that is taken elsewhere stays taken.
	if err := us.create("s0-eu", "again"); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("a second secret of one name: %v", err)
	}
	// A secret moves only to a region that this one knows.
	_, err = eu.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: "projects/p/secrets/s0-eu", Home: "mars"}}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a secret is given away: %v", err)
	}

	// A copy that no lens can transform, of a region that is gone. If copies took part in the copy, in
	// the comparison or in the proof of the rollback, the switch would wait for it.
	us.plant("v1", bson.D{{Key: "_id", Value: "gone:bad"}, {Key: "expires_at", Value: "never"}})

	// All write their own secrets from here on.
	var writes atomic.Int64
	write := func(name string) (halt func()) {
		working, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for n := range writers(t) {
			wg.Go(func() {
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for i := 0; working.Err() == nil; i++ {
					id, payload := fmt.Sprintf("w%d-%s", n, name), fmt.Sprint("write ", i)
					if _, err := w.regions[name].update(id, payload); err != nil {
						t.Errorf("a write in %s: %v", name, err)
						return
					}
					writes.Add(1)
					mu.Lock()
					want[id] = name + ":" + payload
					mu.Unlock()
					select {
					case <-tick.C:
					case <-working.Done():
					}
				}
			})
		}
		return func() {
			stop()
			wg.Wait()
		}
	}
	begun := time.Now()
	halt := map[string]func(){}
	for _, name := range names {
		halt[name] = write(name)
	}
	defer func() {
		for _, stop := range halt {
			stop()
		}
	}()
	for _, to := range []string{"v2", "v1"} {
		begin := []string{"begin-upgrade", "deployment", "--target-version", to, "--server", us.control}
		if to == "v1" {
			begin = []string{"rollback", "--server", us.control}
		}
		if err := us.command(ctx, begin...); err != nil {
			t.Fatal(err)
		}
		us.eventually("a read over "+to, func() error {
			res, err := us.v1.ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{PageSize: 1}))
			if err == nil && res.Header().Get("Dbcontroller-Version") != to {
				err = fmt.Errorf("served by %s", res.Header().Get("Dbcontroller-Version"))
			}
			return err
		})
		if to == "v2" {
			us.eventually("copies are in v2", func() error {
				text, err := us.get()
				if err == nil && strings.Count(text, " in v2: up to date") != 2 {
					err = fmt.Errorf("%s", text)
				}
				return err
			})
			// The new API shows copies, and routes in its own form.
			res, err := us.v2.GetSecret(ctx, connect.NewRequest(&secretsv2.GetSecretRequest{Name: "projects/p/regions/us-west2/secrets/s0-eu"}))
			if err != nil || res.Msg.GetSecret().GetHome() != "eu" {
				t.Errorf("a copy in v2: %v, %v", res, err)
			}
			if _, err := us.update("s0-eu", "from v2"); err != nil { // adapted, then sent on as it came
				t.Errorf("a forwarded write over v2: %v", err)
			}
			mu.Lock()
			want["s0-eu"] = "eu:from v2"
			mu.Unlock()
			_, err = us.v2.RotateSecret(ctx, connect.NewRequest(&secretsv2.RotateSecretRequest{Name: "projects/p/regions/us-west2/secrets/s0-eu"}))
			if reason, _ := refusal.Of(err); reason != refusal.VersionNotActive {
				t.Errorf("a v2 write to a region that is on v1: %v", err)
			}
			// Another region goes away under the others' writes, and is back before the rollback.
			asia := w.regions["asia"]
			halt["asia"]()
			asia.stop()
			us.away("asia", "v1", "v2")
			us.eventually("us writes on", moreThan(&writes, writes.Load()+50))
			asia.start(w.running)
			asia.serves()
			halt["asia"] = write("asia")
			us.eventually("all write", moreThan(&writes, writes.Load()+50))
		}
	}
	for _, stop := range halt {
		stop()
	}
	t.Logf("%d writes in %s by %d writers", writes.Load(), time.Since(begun), len(names)*writers(t))
	for what, args := range map[string][]string{"verify": {"verify", "--server", us.control}, "parked": {"parked", "--server", us.control}} {
		if text, err := us.output(args...); err != nil || strings.Contains(text, "gone:bad") {
			t.Errorf("%s: %v, %s", what, err, text)
		}
	}
	bad := bson.D{{Key: "_id", Value: "gone:bad"}}
	if here, there := us.count("v1", "secrets_copies", bad), us.count("v2", "secrets_copies", bad); here != 1 || there != 0 {
		t.Errorf("a copy of v1 is there %d times, and %d times in v2", here, there)
	}
	w.converge("after an upgrade and a rollback", want, names...)
	for _, name := range names {
		r := w.regions[name]
		mine := bson.D{{Key: "home", Value: name}}
		if all, own := r.count("v1", "secrets", bson.D{}), r.count("v1", "secrets", mine); all != own || own == 0 {
			t.Errorf("%s owns %d secrets, and %d of them are its own", name, all, own)
		}
		if all, own := r.count("v1", "secrets_copies", bson.D{}), r.count("v1", "secrets_copies", mine); all == 0 || own != 0 {
			t.Errorf("%s has %d copies, and %d of its own secrets", name, all, own)
		}
	}

	// A region that is away leaves its copies, and their age is shown.
	eu.stop()
	us.away("eu", "v1")
	w.converge("without eu", want, "us", "asia")
	_, err = us.update("s0-eu", "nobody is there")
	if reason, _ := refusal.Of(err); reason != refusal.RegionUnavailable {
		t.Errorf("a write to a region that is away: %v", err)
	}
	if err := us.create("new-us", "meanwhile"); err != nil {
		t.Fatal(err)
	}
	want["new-us"] = "us:meanwhile"
	eu.start(w.running)
	eu.serves()
	if _, err := us.update("s0-eu", "again"); err != nil {
		t.Fatal(err)
	}
	want["s0-eu"] = "eu:again"
	w.converge("with eu again", want, names...)
}
