package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/record"
)

// listV1 and listV2 list the processes of one client through an API of one server.
func (c *bbsClient) listV1(ctx context.Context, server int, prefix string, see func(guid, print string)) error {
	for token := ""; ; {
		res, err := c.v1[server].ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{Prefix: prefix, PageToken: token}))
		if err != nil {
			return fmt.Errorf("list through the v1 API: %w", err)
		}
		for _, d := range res.Msg.GetDesiredLrps() {
			see(d.GetProcessGuid(), printV1(d))
		}
		if token = res.Msg.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

func (c *bbsClient) listV2(ctx context.Context, server int, prefix string, see func(guid, print string)) error {
	for token := ""; ; {
		res, err := c.v2[server].ListLRPDeployments(ctx, connect.NewRequest(&bbsv2.ListLRPDeploymentsRequest{Prefix: prefix, PageToken: token}))
		if err != nil {
			return fmt.Errorf("list through the v2 API: %w", err)
		}
		for _, d := range res.Msg.GetLrpDeployments() {
			see(d.GetProcessGuid(), printV2(d))
		}
		if token = res.Msg.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

// view is the data that one place shows.
type view struct {
	place string
	as    form
	list  func(ctx context.Context, writer int, see func(key, print string)) error
	mu    sync.Mutex
	seen  workload.Seen
}

func (v *view) see(key, print string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen.Add(key, print)
}

func (v *view) check(l *ledger) workload.Findings { return l.Check(v.place, v.seen, v.as) }

// lookup lists one client's records through an API of a server.
type lookup func(ctx context.Context, server, writer int, see func(key, print string)) error

// checkAPIs checks the data through both APIs of every server. A list takes long, so the lists of
// all clients run in parallel.
//
// The API of the inactive version shows data that follows, with a delay for the latest writes.
// checkAPIs reads it again until it shows the acknowledged state. It counts late records and
// measures the delay.
func checkAPIs(ctx context.Context, active string, servers, writers int, v1, v2 lookup, l *ledger, f *findings) error {
	g, gctx := errgroup.WithContext(ctx)
	// More lists at once would only queue in the servers.
	g.SetLimit(16)
	var views, follows []*view
	for server := range servers {
		for version, list := range map[string]lookup{oldVersion: v1, newVersion: v2} {
			v := &view{place: fmt.Sprintf("the %s API of server %d", version, server+1), as: formOf(version), seen: workload.Seen{}}
			v.list = func(ctx context.Context, w int, see func(string, string)) error { return list(ctx, server, w, see) }
			views = append(views, v)
			if version != active {
				follows = append(follows, v)
			}
			for w := range writers {
				g.Go(func() error { return v.list(gctx, w, v.see) })
			}
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// Wait for the following version before checking, or late records would count as lost.
	for _, v := range follows {
		if err := v.catchUp(ctx, writers, l, f); err != nil {
			return err
		}
	}
	for _, v := range views {
		f.add(v.check(l))
	}
	return nil
}

// Limit and interval of waiting for the following version.
const (
	lateLimit = 30 * time.Second
	lateEvery = 100 * time.Millisecond
)

// catchUp reads the view again until it shows the acknowledged state or the limit has passed.
// Remaining differences are errors.
func (v *view) catchUp(ctx context.Context, writers int, l *ledger, f *findings) error {
	start := time.Now()
	for first := true; ; first = false {
		wrong := v.check(l)
		if first {
			f.noteLate(wrong)
		}
		if len(wrong) == 0 || time.Since(start) > lateLimit {
			if !first {
				f.lateFor = max(f.lateFor, time.Since(start))
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lateEvery):
		}
		// Start from an empty view: records that were deleted meanwhile must not remain.
		v.seen = workload.Seen{}
		for w := range writers {
			if err := v.list(ctx, w, v.see); err != nil {
				return err
			}
		}
	}
}

// checkServices checks the services' data through their APIs, and directly in the database of the
// active version.
func (r *run) checkServices(ctx context.Context, t *traffic, f *findings) error {
	active, writers := r.services.after.CurrentVersion, r.Writers
	err := checkAPIs(ctx, active, t.service.servers, writers,
		func(ctx context.Context, server, w int, see func(string, string)) error {
			return t.bbs.listV1(ctx, server, guidPrefix(w), see)
		},
		func(ctx context.Context, server, w int, see func(string, string)) error {
			return t.bbs.listV2(ctx, server, guidPrefix(w), see)
		}, t.lrps, f)
	if err != nil {
		return err
	}
	err = checkAPIs(ctx, active, t.service.servers, writers,
		func(ctx context.Context, server, w int, see func(string, string)) error {
			return t.secretAPI.listV1(ctx, server, projectOf(w), see)
		},
		func(ctx context.Context, server, w int, see func(string, string)) error {
			return t.secretAPI.listV2(ctx, server, projectOf(w), see)
		}, t.secrets, f)
	if err != nil {
		return err
	}
	// Read past the service as well: an error in the API must not hide one in the data.
	db, _ := r.services.config.DB(active)
	ns, _ := r.services.after.Namespace(active)
	place := databases.Product(db)
	var records raw
	if _, plain := databases.Documents(db); plain {
		records = rawMongo(r.mongo.Database(db.Database), ns)
	} else {
		space, err := databases.Open(ctx, db, databases.Config{App: "demo-check", Log: zap.NewNop()}, r.services.config.Path)
		if err != nil {
			return fmt.Errorf("database of %s: %w", active, err)
		}
		defer space.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read
		records = rawStore(space.Client(), tokensOf(r.services.after, active))
	}
	seen, strays, err := rawProcesses(ctx, records, active)
	if err != nil {
		return err
	}
	// Raw records lack the API's form, so compare a short outline of both.
	f.add(t.lrps.Check(place, seen, outlineIn(active)))
	for _, s := range strays {
		f.add(workload.Findings{{Kind: workload.Foreign, Record: t.lrps.Name + " " + s, Detail: "a definition without its process is in " + place}})
	}
	if seen, err = rawSecrets(ctx, records); err != nil {
		return err
	}
	f.add(t.secrets.Check(place, seen, secretOutline))
	return nil
}

// secretOutline returns a secret in the form of its raw record: the operation that last wrote it.
func secretOutline(s state) string {
	m := &secretsv1.Secret{}
	if err := proto.Unmarshal([]byte(s.v1), m); err != nil {
		return err.Error()
	}
	return "operation " + m.GetLabels()["operation"]
}

// outlineIn returns the form of a process in the raw records of a version.
func outlineIn(version string) form {
	if version == newVersion {
		return outline
	}
	return func(s state) string {
		d := &bbsv1.DesiredLRP{}
		if err := proto.Unmarshal([]byte(s.v1), d); err != nil {
			return err.Error()
		}
		return d.GetAnnotation()
	}
}

// outline returns a process in the form of its raw records: the operation that last wrote it, and
// the ids of its definitions.
func outline(s state) string {
	d := &bbsv2.LRPDeployment{}
	if err := proto.Unmarshal([]byte(s.v2), d); err != nil {
		return err.Error()
	}
	ids := make([]string, 0, len(d.GetDefinitions()))
	for id := range d.GetDefinitions() {
		ids = append(ids, id)
	}
	return outlineOf(d.GetAnnotation(), d.GetActiveDefinitionId(), ids)
}

func outlineOf(annotation, active string, definitions []string) string {
	slices.Sort(definitions)
	return fmt.Sprintf("%s, active %s of %s", annotation, active, strings.Join(definitions, " "))
}

// checkPackages checks the application's data in its current collection. No two documents may have
// the same name, even if the unique index was lost.
func checkPackages(ctx context.Context, db *mongo.Database, version string, l *ledger, f *findings) error {
	cursor, err := db.Collection(packagesKind).Find(ctx, bson.D{})
	if err != nil {
		return fmt.Errorf("read %s: %w", packagesKind, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx)) //nolint:errcheck // read whole
	seen, names := workload.Seen{}, map[string]string{}
	for cursor.Next(ctx) {
		key, err := record.KeyOfDoc(cursor.Current)
		if err != nil {
			return fmt.Errorf("read %s: %w", packagesKind, err)
		}
		name, _ := cursor.Current.Lookup("name").StringValueOK()
		if other, taken := names[name]; taken {
			f.add(workload.Findings{{
				Kind: workload.Duplicated, Record: l.Name + " " + string(key), Detail: fmt.Sprintf("%s has the name %s too", record.Key(other), name),
			}})
		}
		names[name] = string(key)
		// Only documents that clients have written are compared, so skip the cost for the others.
		print := "loaded"
		if l.Written(string(key)) {
			print = printDoc(cursor.Current)
		}
		seen.Add(string(key), print)
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read %s: %w", packagesKind, err)
	}
	f.add(l.Check("MongoDB", seen, formOf(version)))
	return nil
}
