package secrets

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

// RegionsV1 and RegionsV2 declare that the field home has the region that owns a secret. A change of it
// moves the secret there.
func RegionsV1() map[string]region.Kind {
	return map[string]region.Kind{Kind: {Field: "home", Move: "move", Watch: "secrets.v1.SecretService/WatchSecrets", Table: func(s vrunner.Store) region.Table { return tableV1(s) }}}
}

// RegionsV2 is RegionsV1 for v2.
func RegionsV2() map[string]region.Kind {
	return map[string]region.Kind{Kind: {Field: "home", Move: "move", Watch: "secrets.v2.SecretService/WatchSecrets", Table: func(s vrunner.Store) region.Table { return tableV2(s) }}}
}

// homed returns a check that sets the home of a new secret to the region of the store, unless the
// client names one. A service without regions leaves it empty.
func homed[M proto.Message](store vrunner.Store, check func(ctx context.Context, m, before M) error) func(context.Context, M, M) error {
	own := region.Own(store)
	return func(ctx context.Context, m, before M) error {
		r := m.ProtoReflect()
		home, move := r.Descriptor().Fields().ByName("home"), r.Descriptor().Fields().ByName("move")
		// Only the server writes it, so a response must not show what the client has sent.
		r.Clear(move)
		if was := before.ProtoReflect(); was.IsValid() {
			r.Set(move, was.Get(move))
		}
		if own != "" && !before.ProtoReflect().IsValid() && r.Get(home).String() == "" {
			r.Set(home, protoreflect.ValueOfString(own))
		}
		return check(ctx, m, before)
	}
}
