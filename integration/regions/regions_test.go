package regions_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
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

// list returns what a region lists by pages of a size, as HOME:PAYLOAD by id.
func (r *region) list(page int32) (map[string]string, error) {
	all := map[string]string{}
	req := &secretsv1.ListSecretsRequest{PageSize: page}
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
			got, err := w.regions[name].list(3) // many pages of merged lists
			if err == nil && !maps.Equal(got, want) {
				err = fmt.Errorf("it lists %d secrets, %v; want %d, %v", len(got), got, len(want), want)
			}
			return err
		})
	}
}

// stored is a secret or a copy as a database has it.
type stored struct {
	ID   string `bson:"_id"`
	Home string `bson:"home"`
	Move string `bson:"move"`
}

// stored returns the records of a kind in the database of a version.
func (r *region) stored(version, kind string) (all []stored) {
	r.t.Helper()
	names, err := r.dbs[version].ListCollectionNames(r.ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: `^` + kind + `\.n[0-9]+$`}}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range names {
		cursor, err := r.dbs[version].Collection(name).Find(r.ctx, bson.D{{Key: "_dbc.x", Value: bson.D{{Key: "$ne", Value: true}}}})
		if err != nil {
			r.t.Fatal(err)
		}
		var some []stored
		if err := cursor.All(r.ctx, &some); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, some...)
	}
	return all
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

// gone is a copy of a region that is not configured any more, which nobody follows. No lens can transform
// it, in either direction.
func gone(version string) bson.D {
	return bson.D{{Key: "_id", Value: "gone:bad-" + version}, {Key: "home", Value: "gone"}, {Key: "expires_at", Value: "never"}}
}

// TestRegions: three regions own secrets and show copies of the others'. One upgrades and rolls back, and
// others are away for a while. Clients see all secrets, and each write goes to its owner.
func TestRegions(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute) // a hang fails here, and not a slow machine
	defer cancel()
	w := start(ctx, t, "  forward: true\n")
	want := map[string]string{}
	for _, name := range names {
		for i := range 5 {
			id := fmt.Sprintf("s%d-%s", i, name)
			if err := w.regions[name].create(id, "first"); err != nil {
				t.Fatal(err)
			}
			want[id] = name + ":first"
		}
	}
	w.converge("at the start", want, names...)
	us, eu, asia := w.regions["us"], w.regions["eu"], w.regions["asia"]

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

	// If copies took part in the copy, in the comparison or in the proof of the rollback, the switch would
	// wait for this one.
	us.plant("v1", gone("v1"))
	us.begin("v2")
	us.servedBy("v2")
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
	want["s0-eu"] = "eu:from v2"
	_, err = us.v2.RotateSecret(ctx, connect.NewRequest(&secretsv2.RotateSecretRequest{Name: "projects/p/regions/us-west2/secrets/s0-eu"}))
	if reason, _ := refusal.Of(err); reason != refusal.VersionNotActive {
		t.Errorf("a v2 write to a region that is on v1: %v", err)
	}
	// A region is away over the rollback, which this copy does not hold up either.
	asia.stop()
	us.away("asia", "v1", "v2")
	us.plant("v2", gone("v2"))
	us.begin("v1")
	us.servedBy("v1")
	asia.start(w.running)
	asia.serves()
	for _, verb := range []string{"verify", "parked"} {
		if text, err := us.output(verb); err != nil || strings.Contains(text, "gone:bad") {
			t.Errorf("%s: %v, %s", verb, err, text)
		}
	}
	for _, version := range []string{"v1", "v2"} {
		var bad []string
		for _, s := range us.stored(version, "secrets_copies") {
			if s.Home == "gone" {
				bad = append(bad, s.ID)
			}
		}
		if len(bad) != 1 || bad[0] != "gone:bad-"+version {
			t.Errorf("the planted copies in %s are %v", version, bad)
		}
	}
	w.converge("after an upgrade and a rollback", want, names...)

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
