package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/vrunner"
)

// otherwise is a lens that changes the sort order of names in the new version.
const otherwise = "lens: 1\nkey: {from: \"projects/{project}/secrets/{secret}\", to: \"secrets/{secret}/projects/{project}\"}\noperations: []\n"

// namespaceStore gives handlers the namespace of a version. It ignores switches.
type namespaceStore struct {
	client *mongostore.Client
	tokens record.Tokens
}

var (
	_ vrunner.BatchStore = namespaceStore{}
	_ adapt.PagingStore  = namespaceStore{}
)

func (s namespaceStore) Get(ctx context.Context, kind, key string) (record.Record, error) {
	return s.client.Get(ctx, s.tokens[kind], record.StringKey(key))
}

func (s namespaceStore) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	return s.client.List(ctx, record.ListRequest{Token: s.tokens[kind], Prefix: prefix, After: after, Limit: limit})
}

func (s namespaceStore) ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error) {
	return s.client.ListNames(ctx, record.ListRequest{Token: s.tokens[kind], Prefix: prefix, After: after, Limit: limit})
}

func (s namespaceStore) Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error) {
	return s.client.Select(ctx, record.SelectRequest{Tokens: s.tokens, Select: sels, AsList: asList})
}

func (s namespaceStore) ListWith(ctx context.Context, kind, prefix, after string, limit int, _ []string, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	return s.client.ListWith(ctx, s.tokens, record.ListRequest{Token: s.tokens[kind], Prefix: prefix, After: after, Limit: limit}, also)
}

func (s namespaceStore) SelectAt(ctx context.Context, sels []record.Selector) (record.Snapshot, error) {
	return s.client.SelectAt(ctx, record.SelectRequest{Tokens: s.tokens, Select: sels})
}

func (s namespaceStore) Since(ctx context.Context, after record.Position, kinds ...string) ([]record.Change, record.Position, error) {
	specs := make([]record.KindSpec, len(kinds))
	for i, k := range kinds {
		specs[i].Name = k
	}
	batch, err := s.client.Since(ctx, specs, after)
	return batch.Changes, batch.Pos, err
}

func (s namespaceStore) Write(ctx context.Context, ms []record.Mutation) error {
	return s.client.Write(ctx, s.tokens, ms)
}

func (s namespaceStore) Changes(context.Context, ...string) (vrunner.Subscription, error) {
	return nil, errors.New("lists need no changes")
}

// secretsIn creates the kinds in a database and fills them with the secrets. of converts each v1
// secret to the records of these kinds.
func (b *bench) secretsIn(ctx context.Context, ns *mongostore.Namespace, database string, kinds []record.KindSpec, of func(record.Record) ([]record.Record, error)) (namespaceStore, error) {
	s := namespaceStore{ns.Client(), record.Tokens{}}
	for _, kind := range kinds {
		tok, err := ns.Provision(ctx, record.KindSpec{Name: kind.Name}, record.PhysicalName(kind.Name, 1))
		if err != nil {
			return s, err
		}
		s.tokens[kind.Name] = tok
	}
	const batch = 1000
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for from := 0; from < b.lists; from += batch {
		g.Go(func() error {
			docs := map[string][]any{}
			for i := from; i < min(from+batch, b.lists); i++ {
				recs, err := of(secret(i))
				if err != nil {
					return err
				}
				for _, r := range recs {
					docs[r.Kind] = append(docs[r.Kind], r.Doc)
				}
			}
			for kind, docs := range docs {
				if _, err := collection(b.from.client.Database(database).Collection(s.tokens[kind].Name), 1).InsertMany(ctx, docs); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return s, g.Wait()
}

// secret returns the i-th secret, as v1's handlers store it.
func secret(i int) record.Record {
	const projects = 100
	name := fmt.Sprintf("projects/p%02d/secrets/s%06d", i%projects, i/projects)
	doc, err := bson.Marshal(bson.D{
		{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "payload", Value: bson.Binary{Data: []byte(filler(i, 250))}},
		{Key: "expires_at", Value: int64(1_800_000_000 + i)}, {Key: "owner", Value: "payments/ada"},
		{Key: "labels", Value: bson.D{{Key: "env", Value: "prod"}, {Key: "tier", Value: "backend"}}}, {Key: "revision", Value: int64(i + 1)},
	})
	if err != nil {
		panic(err) // only strings and numbers
	}
	return record.Record{Kind: secrets.Kind, Key: record.StringKey(name), Doc: doc}
}

// moved returns a function that transforms a record which is a group of its own.
func moved(d transform.Direction) func(record.Record) ([]record.Record, error) {
	return func(r record.Record) ([]record.Record, error) {
		id, _, err := d.GroupOf(r.Kind, r.Key)
		if err != nil {
			return nil, err
		}
		return d.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{r}}, transform.Group{Name: id.Name})
	}
}

// ways returns both directions of a transformer.
func ways(name string, specs ...transform.Spec) (up, down transform.Direction, err error) {
	reg := transform.NewRegistry(name)
	if err = reg.Add(secrets.V1, secrets.V2, specs...); err != nil {
		return nil, nil, err
	}
	if up, err = reg.Direction(secrets.V1, secrets.V2); err != nil {
		return nil, nil, err
	}
	down, err = reg.Direction(secrets.V2, secrets.V1)
	return up, down, err
}

// versions is the v2 kind that holds a secret's payloads in the transformer several.
const versions = "versions"

// several is a transformer with one v2 secret and two records of its payloads below its name. "v2"
// is the current payload.
func several() transform.Spec {
	return transform.Spec{
		Name: "several", Revision: "1",
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: secrets.Kind}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: secrets.Kind}},
			{
				KindSpec: record.KindSpec{Name: versions},
				GroupOf: func(k record.Key) (string, error) {
					name, _ := k.Name()
					secret, _, ok := strings.Cut(name, "/versions/")
					if !ok {
						return "", errors.New("it is no version of a secret")
					}
					return string(record.StringKey(secret)), nil
				},
				Select: func(group string) record.Selector {
					name, _ := record.Key(group).Name()
					return record.Selector{Key: record.StringKey(name + "/versions/"), Prefix: true}
				},
			},
		}},
		Up: func(src, _ transform.Group) (out []record.Record, err error) {
			for _, r := range src.Records {
				name, _ := r.Key.Name()
				payload := r.Doc.Lookup("payload")
				for _, version := range []string{"v1", "v2"} {
					key := record.StringKey(name + "/versions/" + version)
					out = append(out, record.Record{Kind: versions, Key: key, Doc: with(nil, "_id", key.Value(), "payload", payload)})
				}
				out = append(out, record.Record{Kind: secrets.Kind, Key: r.Key, Doc: with(r.Doc, "payload", bson.RawValue{})})
			}
			return out, nil
		},
		Down: func(src, _ transform.Group) (out []record.Record, err error) {
			var payload bson.RawValue
			for _, r := range src.Records {
				if name, _ := r.Key.Name(); r.Kind == versions && strings.HasSuffix(name, "/v2") {
					payload = r.Doc.Lookup("payload")
				}
			}
			for _, r := range src.Records {
				if r.Kind == secrets.Kind {
					out = append(out, record.Record{Kind: secrets.Kind, Key: r.Key, Doc: with(r.Doc, "payload", payload)})
				}
			}
			return out, nil
		},
	}
}

// with returns doc with the given fields at its end. Fields with a zero value are removed.
func with(doc bson.Raw, fields ...any) bson.Raw {
	_, out := bsoncore.AppendDocumentStart(make([]byte, 0, len(doc)+512))
	elements, err := doc.Elements()
	if doc != nil && err != nil {
		panic(err) // built by this program
	}
	for _, e := range elements {
		if !slices.Contains(fields, any(e.Key())) {
			out = append(out, e...)
		}
	}
	for i := 0; i < len(fields); i += 2 {
		if v := fields[i+1].(bson.RawValue); v.Type != 0 { //nolint:forcetypeassert // names and values
			out = bsoncore.AppendHeader(out, bsoncore.Type(v.Type), fields[i].(string)) //nolint:forcetypeassert // as above
			out = append(out, v.Value...)
		}
	}
	out, err = bsoncore.AppendDocumentEnd(out, 0)
	if err != nil {
		panic(err) // dst starts with our own AppendDocumentStart
	}
	return out
}

// lists compares v1's lists of secrets over its own data with its lists over v2's data.
func lists(ctx context.Context, b *bench, _ int) error {
	one, _, err := ways("secrets", secrets.Specs()...)
	if err != nil {
		return err
	}
	l, err := lens.Parse("otherwise.yaml", []byte(otherwise))
	if err != nil {
		return err
	}
	swap, swapBack, err := ways("otherwise", l.Spec(secrets.Kind, secrets.Kind, lens.Managed()))
	if err != nil {
		return err
	}
	many, manyBack, err := ways("several", several())
	if err != nil {
		return err
	}
	stores := map[string]namespaceStore{}
	for what, of := range map[string]struct {
		kinds []record.KindSpec
		make  func(record.Record) ([]record.Record, error)
	}{
		"own":     {one.SourceKinds(), func(r record.Record) ([]record.Record, error) { return []record.Record{r}, nil }},
		"v2":      {one.TargetKinds(), moved(one)},
		"swap":    {swap.TargetKinds(), moved(swap)},
		"several": {many.TargetKinds(), moved(many)},
	} {
		database := scratch(what)
		ns, err := mongostore.Open(ctx, mongostore.Config{URI: b.from.server.URI(), Database: database})
		if err != nil {
			return err
		}
		defer b.from.drop(ctx, database)
		defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // scratch
		if stores[what], err = b.secretsIn(ctx, ns, database, of.kinds, of.make); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	other, err := adapt.New(stores["swap"], swapBack, swap, adapt.Config{})
	if err != nil {
		return err
	}
	groups, err := adapt.New(stores["several"], manyBack, many, adapt.Config{Leads: map[string]string{secrets.Kind: secrets.Kind}})
	if err != nil {
		return err
	}
	client := func(s vrunner.Store) secretsv1connect.SecretServiceClient {
		_, h := secrets.NativeV1(s)
		return secretsv1connect.NewSecretServiceClient(inprocess.Client(h), "http://inprocess")
	}
	return b.listed(ctx, client(stores["own"]), []adapted{
		{"", "from v2's data", client(secrets.OverV2(stores["v2"]))},
		{".several", "from v2's data, of which a secret is three records: itself and two payloads under its name", client(vrunner.Over(stores["several"], groups))},
		{".otherwise", "from v2's data, whose names begin with the secret, so that they sort otherwise: v1's order is kept, by an index of the names in the server's memory", client(vrunner.Over(stores["swap"], other))},
	})
}

// adapted is v1 over v2's data.
type adapted struct {
	rows   string // suffix of its row names
	how    string
	client secretsv1connect.SecretServiceClient
}

// listed measures first pages and complete lists.
func (b *bench) listed(ctx context.Context, own secretsv1connect.SecretServiceClient, over []adapted) error {
	const pageOf, allOf, firsts, walks = 10, 1000, 200, 3
	clients := []secretsv1connect.SecretServiceClient{own}
	filled := time.Duration(0)
	for _, a := range over {
		begun := time.Now()
		if err := listPages(ctx, a.client, pageOf, pageOf); err != nil { // fills the index, if there is one
			return err
		}
		filled = max(filled, time.Since(begun))
		clients = append(clients, a.client)
	}
	took := func(times, size, want int) ([]float64, error) {
		felt := make([][]float64, len(clients))
		for n := range times {
			for i := range clients {
				// The order rotates, so that no client always finds the cache that another one has
				// warmed.
				at := (n + i) % len(clients)
				begun := time.Now()
				if err := listPages(ctx, clients[at], size, want); err != nil {
					return nil, err
				}
				felt[at] = append(felt[at], float64(time.Since(begun).Nanoseconds())/1e6)
			}
		}
		medians := make([]float64, len(clients))
		for i := range clients {
			medians[i] = percentile(felt[i], 50)
		}
		return medians, nil
	}
	first, err := took(firsts, pageOf, pageOf)
	if err != nil {
		return err
	}
	all, err := took(walks, allOf, b.lists)
	if err != nil {
		return err
	}
	const how = "%d secrets of about 500 B (examples/secrets) in MongoDB, listed by v1's own handlers from v1's data and %s, in turn, in this process: "
	for i, a := range over {
		b.figure("adapt.list"+a.rows+".first", first[i+1]/first[0], how+"the first page of %d, %d times each, median %.2f and %.2f ms.", b.lists, a.how, pageOf, firsts, first[0], first[i+1])
		b.figure("adapt.list"+a.rows+".all", all[i+1]/all[0], how+"all pages of %d, %d times each, median %.0f and %.0f ms, which is %.0f and %.0f records/s.", b.lists, a.how, allOf, walks, all[0], all[i+1], 1000*float64(b.lists)/all[0], 1000*float64(b.lists)/all[i+1])
	}
	b.figure("adapt.list.otherwise.fill", float64(filled.Milliseconds()), "the first list of a server, or after a minute without any, makes the index of %d names.", b.lists)
	return nil
}

// listPages lists that many secrets, page by page.
func listPages(ctx context.Context, c secretsv1connect.SecretServiceClient, size, want int) error {
	req := &secretsv1.ListSecretsRequest{PageSize: int32(size)} //nolint:gosec // a constant
	for n := 0; n < want; {
		res, err := c.ListSecrets(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		n += len(res.Msg.GetSecrets())
		if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" && n != want {
			return fmt.Errorf("%d secrets were listed, want %d", n, want)
		}
	}
	return nil
}
