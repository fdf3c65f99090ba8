package etcdstore_test

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/record"
)

// sleeper stands still before it changes a role for the first time, while meanwhile happens, and
// then happens behind that change.
type sleeper struct {
	clientv3.Auth
	meanwhile, then func()
	woken           bool
}

func (s *sleeper) RoleGrantPermission(ctx context.Context, role, from, to string, right clientv3.PermissionType) (*clientv3.AuthRoleGrantPermissionResponse, error) {
	if s.woken {
		return s.Auth.RoleGrantPermission(ctx, role, from, to, right)
	}
	s.woken = true
	s.meanwhile()
	defer s.then()
	return s.Auth.RoleGrantPermission(ctx, role, from, to, right)
}

// mortal sends nothing once its process was killed, not even what is done for a caller that has
// given up.
type mortal struct {
	clientv3.KV
	life context.Context //nolint:containedctx // the process's
}

func (m mortal) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err := m.life.Err(); err != nil {
		return nil, err
	}
	return m.KV.Get(ctx, key, opts...)
}

// asleep is a controller that stands still. Ended, its context is the end of its process.
func (o orders) asleep(t *testing.T, meanwhile, then func(kill func())) (*etcdstore.Store, context.Context) {
	t.Helper()
	life, kill := context.WithCancel(t.Context())
	t.Cleanup(kill)
	conn := o.login(t, "dbc")
	conn.Auth = &sleeper{Auth: conn.Auth, meanwhile: func() { meanwhile(kill) }, then: func() { then(kill) }}
	conn.KV = mortal{conn.KV, life}
	return o.open(t, conn), life
}

func (o orders) put(t *testing.T, key string) error {
	t.Helper()
	return second(o.app.Put(t.Context(), "/app/orders/"+key, `{"n":1}`))
}

func nothing(func()) {}

// TestFrozenEnd: a controller stands still while it gives the application its right back, at the
// end of one fence, and goes on behind the next one. Whether it lives then or is killed, the right
// is taken back, and that it was there, and was used, is a breach.
func TestFrozenEnd(t *testing.T) {
	t.Parallel()
	for what, dies := range map[string]bool{"lives": false, "dies": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			o := newOrders(t)
			first := o.fence(t, "orders.n1")
			next := first
			next.To = "orders.n2"
			if err := o.store.Fence(ctx, first); err != nil {
				t.Fatal(err)
			}
			asleep, life := o.asleep(t, func(func()) {
				if err := errors.Join(o.store.Unfence(ctx, first), o.put(t, "between"), o.store.Fence(ctx, next)); err != nil {
					t.Error(err)
				}
			}, func(kill func()) {
				if err := o.put(t, "late"); err != nil {
					t.Errorf("nothing was given, and so nothing is shown: %v", err)
				}
				if dies {
					kill()
				}
			})
			if err := asleep.Unfence(life, first); (err != nil) != dies {
				t.Errorf("the end of an earlier fence: %v", err)
			}
			if err := o.put(t, "later"); !dies && !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("put behind the fence: %v", err)
			}
			next.Token.Name = next.To
			want := int64(1)
			if dies {
				want = 2 // nobody has taken the right back yet
			}
			for i, told := range []bool{true, !dies, false} {
				found, err := o.store.Uphold(ctx, next, nil)
				if err != nil || told && (len(found) != 1 || found[0].Count != want) || !told && len(found) != 0 {
					t.Errorf("look %d: found %+v, %v", i, found, err)
				}
			}
			if err := o.put(t, "latest"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("put behind the fence: %v", err)
			}
		})
	}
}

// TestFrozenFence: a controller stands still before it takes the application's right, and goes on
// when the fence has ended. Whether it lives then or is killed, the application has its right again,
// but for what an administrator has revoked.
func TestFrozenFence(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for what, dies := range map[string]bool{"lives": false, "dies": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := newOrders(t)
			f := o.fence(t, "orders.n1")
			asleep, life := o.asleep(t, func(func()) {
				if err := errors.Join(o.store.Fence(ctx, f), o.store.Unfence(ctx, f)); err != nil {
					t.Error(err)
				}
			}, func(kill func()) {
				if err := o.put(t, "taken"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
					t.Errorf("nothing was taken, and so nothing is shown: %v", err)
				}
				if dies {
					kill()
				}
			})
			if err := asleep.Fence(life, f); err == nil {
				t.Error("a fence that was ended was set")
			}
			open := record.Fence{Class: f.Class, Token: o.tok, Restore: f.Restore}
			if dies {
				if found, err := o.store.Uphold(ctx, open, nil); err != nil || len(found) != 0 {
					t.Errorf("found %+v, %v", found, err)
				}
			}
			if err := o.put(t, "a"); err != nil {
				t.Errorf("put when no fence is there: %v", err)
			}
			if _, err := o.root.RoleRevokePermission(ctx, "shop", "/app/orders/", "/app/orders0"); err != nil {
				t.Fatal(err)
			}
			if _, err := o.store.Uphold(ctx, open, nil); err != nil {
				t.Error(err)
			}
			if err := o.put(t, "b"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("put without a right: %v", err)
			}
		})
	}
}

// TestFenceBeingSet: who knows of no fence yet gives nothing back that one is taking.
func TestFenceBeingSet(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	f := o.fence(t, "orders.n1")
	asleep, life := o.asleep(t, nothing, func(func()) {
		if found, err := o.store.Uphold(t.Context(), record.Fence{Class: f.Class, Token: o.tok, Restore: f.Restore}, nil); err != nil || len(found) != 0 {
			t.Errorf("found %+v, %v", found, err)
		}
		if err := o.put(t, "b"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("put before the gate moves: %v", err)
		}
	})
	if err := asleep.Fence(life, f); err != nil {
		t.Error(err)
	}
}

// TestFenceThatFails gives back what it had taken of one role before it failed at the next.
func TestFenceThatFails(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	o.application(t, "warehouse", "/app/orders/")
	f := o.fence(t, "orders.n1")
	ctx, cancel := context.WithCancel(t.Context())
	conn := o.login(t, "dbc")
	conn.Auth = &sleeper{Auth: conn.Auth, meanwhile: func() {}, then: cancel}
	if err := o.open(t, conn).Fence(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("fence: %v", err)
	}
	if err := o.put(t, "b"); err != nil {
		t.Errorf("put when no fence was set: %v", err)
	}
}
