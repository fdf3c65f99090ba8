package upstream

import (
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"dbcontroller.dev/internal/base/printable"
)

// Login is a user of the database. It is the same one in all clusters. Its identity is the pointer.
type Login struct {
	User     string
	Database string // that has the user
	Password string
}

// String returns the login without its password.
func (l *Login) String() string { return printable.Line(l.User + "@" + l.Database) }

// apply puts the login in the place of that of the options.
func (l *Login) apply(opts *options.ClientOptions) *options.ClientOptions {
	return opts.SetAuth(options.Credential{AuthSource: l.Database, Username: l.User, Password: l.Password, PasswordSet: true})
}

// Owners returns the uid that sessions of the login have in a cluster: one for clusters with access control,
// one for those without.
func (l *Login) Owners() [][]byte {
	controlled, free := sha256.Sum256([]byte(l.User+"@"+l.Database)), sha256.Sum256(nil)
	return [][]byte{controlled[:], free[:]}
}

// ErrLogin means that a cluster refuses a login that the proxy uses for a client.
var ErrLogin = errors.New("the cluster refuses the login")

// Codes of servers about logins.
const (
	codeUserNotFound         = 11
	codeUnauthorized         = 13
	codeAuthenticationFailed = 18
	codeMechanismUnavailable = 334
)

// refused reports whether a server has refused the login of a new connection. Other causes pass, such as a
// network that fails.
func refused(err error) bool {
	var e driver.Error
	return errors.As(err, &e) && slices.Contains([]int32{codeUserNotFound, codeUnauthorized, codeAuthenticationFailed, codeMechanismUnavailable}, e.Code)
}

// loggedOut reports whether the server has ended the login of a connection, because its user was dropped. The
// connection stays so, also after the user is created again.
func loggedOut(e driver.Error) bool {
	return e.Code == codeUnauthorized && strings.HasSuffix(e.Message, "requires authentication")
}
