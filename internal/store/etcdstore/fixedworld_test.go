package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/record"
)

// secured is an etcd with authentication: the controllers' user, and an application's, which may
// read and write below /app/.
type secured struct {
	endpoint string
	root     *etcdconn.Conn
}

func startSecured(t *testing.T) secured {
	t.Helper()
	s := secured{endpoint: localetcd.Start(t, localetcd.Options{Operations: mostOperations, Bytes: mostBytes})}
	ctx := t.Context()
	plain := connect(t, s.endpoint)
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(plain.RoleAdd(ctx, "root"))
	for _, user := range []string{"root", "dbc"} {
		do(plain.UserAdd(ctx, user, password))
		do(plain.UserGrantRole(ctx, user, "root"))
	}
	do(plain.AuthEnable(ctx))
	s.root = s.login(t, "dbc")
	return s
}

func (s secured) login(t *testing.T, user string) *etcdconn.Conn {
	t.Helper()
	conn, err := etcdconn.Open(t.Context(), etcdconn.Config{
		Endpoints: []string{s.endpoint}, Username: user, Password: func() (string, error) { return password, nil }, MaxRequest: mostBytes,
		Scope: "/app/",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// application is a user with a role of its own that may write below some prefixes.
func (s secured) application(t *testing.T, name string, prefixes ...string) *clientv3.Client {
	t.Helper()
	ctx := t.Context()
	errs := []error{second(s.root.RoleAdd(ctx, name)), second(s.root.UserAdd(ctx, name, password)), second(s.root.UserGrantRole(ctx, name, name))}
	for _, p := range prefixes {
		errs = append(errs, second(s.root.RoleGrantPermission(ctx, name, p, clientv3.GetPrefixRangeEnd(p), clientv3.PermissionType(clientv3.PermReadWrite))))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	// At each change of a role etcd computes the permissions of all users anew.
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := errors.Join(second(s.root.UserDelete(ctx, name)), second(s.root.RoleDelete(ctx, name))); err != nil {
			t.Error(err)
		}
	})
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}, Username: name, Password: password, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func second[T any](_ T, err error) error { return err }

// writer is an application that keeps documents of JSON or BSON in keys of its own, one prefix
// for each kind. It knows nothing of the store.
type writer struct {
	client *clientv3.Client
	prefix string
	format etcdstore.Format
	names  *etcdstore.Store // which names there are, for what is asked of a name
}

func (w writer) key(name, id string) string { return w.prefix + w.kind(name) + "/" + id }

func (w writer) kind(name string) string {
	if kind, _, ok := record.KindOfPhysical(name); ok {
		return kind
	}
	return name
}

func (w writer) value(doc bson.Raw) (id, value string, err error) {
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		return "", "", err
	}
	id, ok := d[0].Value.(string)
	if !ok {
		return "", "", fmt.Errorf("the _id of %s is no text", doc)
	}
	b, err := bson.Marshal(d[1:])
	if w.format == etcdstore.JSON && err == nil {
		b, err = bson.MarshalExtJSON(d[1:], true, false)
	}
	return id, string(b), err
}

func (w writer) Insert(ctx context.Context, name string, doc bson.Raw) error {
	id, value, err := w.value(doc)
	if err != nil {
		return err
	}
	key := w.key(name, id)
	resp, err := w.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, value)).Commit()
	if err == nil && !resp.Succeeded {
		return record.ErrExists
	}
	return err
}

func (w writer) Put(ctx context.Context, name string, doc bson.Raw) error {
	id, value, err := w.value(doc)
	if err == nil {
		_, err = w.client.Put(ctx, w.key(name, id), value)
	}
	return err
}

func (w writer) Delete(ctx context.Context, name string, id bson.RawValue) error {
	_, err := w.client.Delete(ctx, w.key(name, id.StringValue()))
	return err
}

// Documents are those of what has a name. The keys of a kind are of one name at a time, and those
// behind a fence are read under its own name, too; what is built under a hidden one, nobody reads
// before it is told to.
func (w writer) Documents(ctx context.Context, name string) (docs []bson.Raw, err error) {
	info, err := w.names.Describe(ctx, record.KindSpec{Name: w.kind(name), Fixed: true}, name)
	if err != nil {
		return nil, err
	}
	if !info.Exists {
		role, err := w.client.RoleGet(ctx, w.client.Username)
		if err != nil {
			return nil, err
		}
		for _, p := range role.Perm {
			if string(p.Key) == w.key(name, "") && p.PermType != authpb.Permission_READ {
				return nil, nil
			}
		}
	}
	resp, err := w.client.Get(ctx, w.key(name, ""), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range resp.Kvs {
		var d bson.D
		if w.format == etcdstore.JSON {
			err = bson.UnmarshalExtJSON(kv.Value, false, &d)
		} else {
			err = bson.Unmarshal(kv.Value, &d)
		}
		if err != nil {
			return nil, err
		}
		doc, err := bson.Marshal(append(bson.D{{Key: "_id", Value: strings.TrimPrefix(string(kv.Key), w.key(name, ""))}}, d...))
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return docs, nil
}
