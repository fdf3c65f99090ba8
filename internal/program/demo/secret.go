package app

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
)

// secret is a secret in the view of its owner. Its content follows from the numbers of the
// operations that wrote it.
type secret struct {
	project, id string
	op          int64 // operation that wrote everything except rotation
	rotation    int32 // days; only v2 clients set it
}

func (s secret) nameV1() string { return s.project + "/secrets/" + s.id }

func (s secret) parentV2() string { return s.project + "/regions/" + secrets.Region }

func (s secret) nameV2() string { return s.parentV2() + "/secrets/" + s.id }

func (s secret) payload() []byte { return fmt.Appendf(nil, "payload of operation %d", s.op) }

func (s secret) labels() map[string]string {
	return map[string]string{"operation": fmt.Sprint(s.op), "environment": "demo"}
}

// expiry is a time in Unix seconds, some years ahead.
func (s secret) expiry() int64 { return 1_900_000_000 + s.op }

func (s secret) team() string   { return fmt.Sprintf("team-%d", s.op%7) }
func (s secret) person() string { return fmt.Sprintf("person-%d", s.op%31) }

// replaced reports whether the secret names another one that it replaces.
func (s secret) replaced() bool { return s.op%3 == 0 }

// v1 returns the secret in the form of the v1 API.
func (s secret) v1() *secretsv1.Secret {
	out := &secretsv1.Secret{
		Name: s.nameV1(), Payload: s.payload(), ExpiresAt: s.expiry(), Owner: s.team() + "/" + s.person(), Labels: s.labels(),
	}
	if s.replaced() {
		out.Replaces = s.project + "/secrets/former-" + s.id
	}
	return out
}

// v2 returns the secret in the form of the v2 API.
func (s secret) v2() *secretsv2.Secret {
	out := &secretsv2.Secret{
		Name: s.nameV2(), Payload: s.payload(), ExpireTime: timestamppb.New(time.Unix(s.expiry(), 0)),
		OwnerTeam: s.team(), OwnerPerson: s.person(), Labels: s.labels(), RotationDays: s.rotation,
	}
	if s.replaced() {
		out.Replaces = s.parentV2() + "/secrets/former-" + s.id
	}
	return out
}

func (s secret) state() state { return state{v1: printSecretV1(s.v1()), v2: printSecretV2(s.v2())} }

// printSecretV1 and printSecretV2 omit fields that the service sets itself.
func printSecretV1(s *secretsv1.Secret) string {
	s = proto.CloneOf(s)
	s.Revision = 0
	return printed(s)
}

func printSecretV2(s *secretsv2.Secret) string {
	s = proto.CloneOf(s)
	s.Revision = 0
	return printed(s)
}

// oldName returns the v1 name of a secret, which is its key in the ledger.
func oldName(name string) string { return strings.Replace(name, "/regions/"+secrets.Region, "", 1) }

// projectOf returns the project of one client's secrets.
func projectOf(client int) string { return fmt.Sprintf("projects/demo-%d", client) }

// newName returns the v2 name of a secret.
func newName(name string) string {
	project, id, _ := strings.Cut(name, "/secrets/")
	return secret{project: project, id: id}.nameV2()
}
