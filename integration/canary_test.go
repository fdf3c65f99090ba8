package integration_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// TestCanary: what records hold, and passwords, are in none of the places that people look
// at who may operate a deployment: etcd, the API, logs, files. The records are some that the
// target refuses, whose errors quote them where MongoDB has its way.
func TestCanary(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	const canary = "CANARY-078-05-1120"
	server := authServer(ctx, t)
	s := newSystem(ctx, t, settings{
		uris: map[string]string{"v1": server.URI(), "v2": server.URI()}, service: "canary.example.com",
		copy:  "{auto: true, workers: 2}",
		kinds: `[{from: packages, to: packages, lens: packages.yaml, indexes: {packages: [{key: {loc: 2dsphere}}, {key: {ssn: 1}, unique: true}]}}]`,
	})
	if err := s.db["v1"].Client().Database("admin").RunCommand(ctx, bson.D{
		{Key: "createUser", Value: "mover"}, {Key: "pwd", Value: secret}, {Key: "roles", Value: bson.A{"root"}},
	}).Err(); err != nil {
		t.Fatal(err)
	}
	login := withLogin(server.URI(), "mover:"+secret)
	s.env = append(s.env, "MONGO_V1="+login, "MONGO_V2="+login)
	source := s.db["v1"].Collection(packagesKind)
	insert := func(doc ...bson.E) {
		t.Helper()
		if _, err := source.InsertOne(ctx, append(bson.D(doc), bson.E{Key: "name", Value: canary + " name"})); err != nil {
			t.Fatal(err)
		}
	}
	point := func(lng float64) bson.E {
		return bson.E{Key: "loc", Value: bson.D{{Key: "type", Value: "Point"}, {Key: "coordinates", Value: bson.A{lng, 1}}}}
	}
	insert(bson.E{Key: "_id", Value: "good"}, point(1), bson.E{Key: "ssn", Value: canary})
	insert(bson.E{Key: "_id", Value: "twice"}, point(1), bson.E{Key: "ssn", Value: canary})
	controller := s.controller("controller", breakPoint{}).ready(ctx)
	s.awaitParked(ctx, "ssn_1", 1)
	// Before the index is there, its build would fail instead.
	eventually(ctx, t, "the index is built", func() error {
		d, err := s.record.Get(ctx)
		if err != nil {
			return err
		}
		ns, _ := d.Namespace("v2")
		k, _ := ns.Kind(packagesKind)
		specs, err := s.db["v2"].Collection(k.Physical).Indexes().ListSpecifications(ctx)
		for _, spec := range specs {
			if spec.Name == "loc_2dsphere" {
				return nil
			}
		}
		return errors.Join(err, errors.New("it is not there"))
	})
	// Both versions have the field: the lens refuses it.
	insert(bson.E{Key: "_id", Value: "lens"}, bson.E{Key: "section", Value: canary + " section"}, bson.E{Key: "category", Value: canary + " category"}, bson.E{Key: "ssn", Value: "2"})
	insert(bson.E{Key: "_id", Value: "geo"}, point(200.25), bson.E{Key: "ssn", Value: canary + " 3"})
	var said map[string]string
	eventually(ctx, t, "all are parked", func() error {
		said = map[string]string{}
		parked, err := s.record.ParkedNow(ctx)
		for _, p := range parked {
			said[p.Key] = p.Error
		}
		if err == nil && len(said) != 3 {
			err = &incomplete{said}
		}
		return err
	})
	for key, want := range map[string]string{"twice": "ssn_1", "lens": "category", "geo": "field loc (index loc_2dsphere)"} {
		if !strings.Contains(said[key], want) {
			t.Errorf("%s is parked for %q, which does not say %q", key, said[key], want)
		}
	}
	s.plan(ctx)

	clean := func(where, text string) {
		t.Helper()
		for _, word := range []string{"CANARY", "200.25", secret} {
			if i := strings.Index(text, word); i >= 0 {
				t.Errorf("%s tells %q: %s", where, word, text[max(0, i-200):min(len(text), i+100)])
			}
		}
	}
	kvs, _, err := s.etcd.List(ctx, s.record.Root())
	if err != nil || len(kvs) == 0 {
		t.Fatalf("%d keys in etcd, %v", len(kvs), err)
	}
	for _, kv := range kvs {
		clean("etcd "+kv.Key, string(kv.Value))
	}
	api := s.apis()[0]
	answers := map[string]proto.Message{}
	if got, err := api.GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{Name: s.name})); err == nil {
		answers["GetDeployment"] = got.Msg
	} else {
		t.Error(err)
	}
	if got, err := api.ListParked(ctx, connect.NewRequest(&dbv1.ListParkedRequest{Name: s.name})); err == nil {
		answers["ListParked"] = got.Msg
	} else {
		t.Error(err)
	}
	for name, m := range answers {
		clean(name, protojson.Format(m))
	}
	log, err := os.ReadFile(controller.log)
	if err != nil || len(log) == 0 {
		t.Fatalf("the log has %d bytes, %v", len(log), err)
	}
	clean("the log", string(log))
	err = filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		clean(path, string(text))
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// incomplete tells what is parked so far.
type incomplete struct{ parked map[string]string }

func (i *incomplete) Error() string {
	var keys []string
	for key, why := range i.parked {
		keys = append(keys, key+": "+why)
	}
	return "parked are only " + strings.Join(keys, "; ")
}
