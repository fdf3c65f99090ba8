package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	"dbcontroller.dev/internal/inprocess"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/mongostore"
	"dbcontroller.dev/sample/secrets"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/vrunner"
)

// otherwise is a lens whose names sort otherwise in the new version.
const otherwise = "lens: 1\nkey: {from: \"projects/{project}/secrets/{secret}\", to: \"secrets/{secret}/projects/{project}\"}\noperations: []\n"

// namespaceStore is a version's namespace as handlers have it, of which nothing is moved.
type namespaceStore struct {
	client *mongostore.Client
	tokens record.Tokens
}

var _ vrunner.BatchStore = namespaceStore{}

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

func (s namespaceStore) Write(ctx context.Context, ms []record.Mutation) error {
	return s.client.Write(ctx, s.tokens, ms)
}

func (s namespaceStore) Changes(context.Context, ...string) (vrunner.Subscription, error) {
	return nil, errors.New("lists need no changes")
}

// secretsIn is a database of secrets, filled.
func (b *bench) secretsIn(ctx context.Context, ns *mongostore.Namespace, database string, doc func(i int) (bson.Raw, error)) (namespaceStore, error) {
	tok, err := ns.Provision(ctx, record.KindSpec{Name: secrets.Kind}, record.PhysicalName(secrets.Kind, 1))
	if err != nil {
		return namespaceStore{}, err
	}
	const batch = 1000
	coll := collection(b.from.client.Database(database).Collection(tok.Name), 1)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for from := 0; from < b.lists; from += batch {
		g.Go(func() error {
			var docs []any
			for i := from; i < min(from+batch, b.lists); i++ {
				d, err := doc(i)
				if err != nil {
					return err
				}
				docs = append(docs, d)
			}
			_, err := coll.InsertMany(ctx, docs)
			return err
		})
	}
	return namespaceStore{ns.Client(), record.Tokens{secrets.Kind: tok}}, g.Wait()
}

// secret is one of v1, as its handlers store it.
func secret(i int) record.Record {
	const projects = 100
	name := fmt.Sprintf("projects/p%02d/secrets/s%06d", i%projects, i/projects)
	doc, err := bson.Marshal(bson.D{
		{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "payload", Value: bson.Binary{Data: []byte(filler(i, 250))}},
		{Key: "expires_at", Value: int64(1_800_000_000 + i)}, {Key: "owner", Value: "payments/ada"},
		{Key: "labels", Value: bson.D{{Key: "env", Value: "prod"}, {Key: "tier", Value: "backend"}}}, {Key: "revision", Value: int64(i + 1)},
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	return record.Record{Kind: secrets.Kind, Key: record.StringKey(name), Doc: doc}
}

// moved is what a direction makes of a record that is a group of its own.
func moved(d transform.Direction, r record.Record) (bson.Raw, error) {
	id, _, err := d.GroupOf(r.Kind, r.Key)
	if err != nil {
		return nil, err
	}
	out, err := d.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{r}}, transform.Group{Name: id.Name})
	if err != nil {
		return nil, err
	}
	return out[0].Doc, nil
}

// ways are a transformer both ways.
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

// lists has the handlers of v1 list its secrets over its own data and over those of v2, in turn.
func lists(ctx context.Context, b *bench, _ int) error {
	up, _, err := ways("secrets", secrets.Specs()...)
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
	stores := map[string]namespaceStore{}
	for what, doc := range map[string]func(i int) (bson.Raw, error){
		"own":  func(i int) (bson.Raw, error) { return secret(i).Doc, nil },
		"v2":   func(i int) (bson.Raw, error) { return moved(up, secret(i)) },
		"swap": func(i int) (bson.Raw, error) { return moved(swap, secret(i)) },
	} {
		database := scratch(what)
		ns, err := mongostore.Open(ctx, mongostore.Config{URI: b.from.server.URI(), Database: database})
		if err != nil {
			return err
		}
		defer b.from.drop(ctx, database)
		defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // scratch
		if stores[what], err = b.secretsIn(ctx, ns, database, doc); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	shown, err := adapt.New(stores["swap"], swapBack, swap, adapt.Config{})
	if err != nil {
		return err
	}
	client := func(s vrunner.Store) secretsv1connect.SecretServiceClient {
		_, h := secrets.NativeV1(s)
		return secretsv1connect.NewSecretServiceClient(inprocess.Client(h), "http://inprocess")
	}
	own, adapted := client(stores["own"]), client(secrets.OverV2(stores["v2"]))
	other := client(vrunner.Over(stores["swap"], shown))
	return b.listed(ctx, own, adapted, other)
}

// listed measures first pages and whole lists.
func (b *bench) listed(ctx context.Context, own, adapted, other secretsv1connect.SecretServiceClient) error {
	const pageOf, allOf, firsts = 10, 1000, 100
	first := func(c secretsv1connect.SecretServiceClient) func() error {
		return func() error { return listPages(ctx, c, pageOf, pageOf) }
	}
	all := func(c secretsv1connect.SecretServiceClient) func() error {
		return func() error { return listPages(ctx, c, allOf, b.lists) }
	}
	took := func(times int, ways ...func() error) ([]float64, error) {
		felt := make([][]float64, len(ways))
		for n := range times {
			for i := range ways {
				way := (n + i) % len(ways)
				begun := time.Now()
				if err := ways[way](); err != nil {
					return nil, err
				}
				felt[way] = append(felt[way], float64(time.Since(begun).Nanoseconds())/1e6)
			}
		}
		medians := make([]float64, len(ways))
		for i := range ways {
			medians[i] = percentile(felt[i], 50)
		}
		return medians, nil
	}
	page, err := took(firsts, first(own), first(adapted))
	if err != nil {
		return err
	}
	whole, err := took(2, all(own), all(adapted))
	if err != nil {
		return err
	}
	away, err := took(5, first(other))
	if err != nil {
		return err
	}
	through, err := took(1, all(other))
	if err != nil {
		return err
	}
	const how = "%d secrets of about 500 B (sample/secrets) in MongoDB, listed by v1's own handlers over v1's data and over v2's, in turn, in this process: "
	b.figure("adapt.list.first", page[1]/page[0], how+"the first page of %d, %d times each, median %.2f and %.2f ms.", b.lists, pageOf, firsts, page[0], page[1])
	b.figure("adapt.list.all", whole[1]/whole[0], how+"all pages of %d, %.0f and %.0f ms, which is %.0f and %.0f records/s.", b.lists, allOf, whole[0], whole[1], 1000*float64(b.lists)/whole[0], 1000*float64(b.lists)/whole[1])
	b.figure("adapt.list.otherwise", away[0], how+"the first page of %d where v2's names begin with the secret, so that they sort otherwise: v1's order is kept, and each page goes over all names.", b.lists, pageOf)
	b.figure("adapt.list.otherwise.all", through[0]/whole[0], how+"the same, all pages of %d, %.0f ms.", b.lists, allOf, through[0])
	return nil
}

// listPages lists so many secrets, page by page.
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
