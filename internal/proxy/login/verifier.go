package login

import (
	"crypto/md5"  // #nosec G501 -- the form of passwords in SCRAM-SHA-1 of MongoDB
	"crypto/rand" // salts
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/xdg-go/scram"
	"github.com/xdg-go/stringprep"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/printable"
)

// Mechanisms, in the order of preference.
const (
	SHA256 = "SCRAM-SHA-256"
	SHA1   = "SCRAM-SHA-1"
)

// mechanism has the values that MongoDB uses.
type mechanism struct {
	name string
	hash scram.HashGeneratorFcn
	size int // of the keys
	// Of verifiers that are made here. Fake ones look the same.
	salt, iterations int
}

var mechanisms = []mechanism{
	{SHA256, scram.SHA256, 32, 28, 15_000},
	{SHA1, scram.SHA1, 20, 16, 10_000},
}

// Bounds of what a file may have. Drivers refuse fewer iterations, and more would only slow them down.
const (
	fewestIterations = 4096
	mostIterations   = 1_000_000
	shortestSalt     = 8
	longestSalt      = 64
)

// Verifier checks a user's password. Its keys are mechanisms.
type Verifier map[string]scram.StoredCredentials

// names returns the mechanisms of a verifier in the order of preference.
func (v Verifier) names() (out []string) {
	for _, m := range mechanisms {
		if _, ok := v[m.name]; ok {
			out = append(out, m.name)
		}
	}
	return out
}

// credential is the form of a file, and of MongoDB's admin.system.users.
type credential struct {
	Iterations int    `bson:"iterationCount" json:"iterationCount"`
	Salt       string `bson:"salt" json:"salt"`
	StoredKey  string `bson:"storedKey" json:"storedKey"`
	ServerKey  string `bson:"serverKey" json:"serverKey"`
}

// entry is a user of admin.system.users, as usersInfo returns it.
type entry struct {
	User        string   `bson:"user"`
	Database    string   `bson:"db"`
	Credentials bson.Raw `bson:"credentials"`
}

// Parse reads the text of a verifier's file for a user. It is JSON in one of three forms: the reply to usersInfo
// with showCredentials, one user of that reply, or its credentials. Errors do not quote the text.
func Parse(text []byte, database, name string) (Verifier, error) {
	var doc bson.Raw
	if err := bson.UnmarshalExtJSON(text, false, &doc); err != nil {
		return nil, errors.New("not JSON: want what 'dbcontroller proxy verifier' writes, or the reply of MongoDB to usersInfo with showCredentials")
	}
	var one entry
	var reply struct {
		Users []entry `bson:"users"`
	}
	if errors.Join(bson.Unmarshal(doc, &one), bson.Unmarshal(doc, &reply)) != nil {
		return nil, errors.New("neither credentials nor a user that has them")
	}
	switch {
	case len(reply.Users) > 0:
		for _, u := range reply.Users {
			if u.User == name && u.Database == database {
				one = u
			}
		}
		if one.User == "" {
			return nil, fmt.Errorf("it has other users than %s of database %s", printable.Line(name), printable.Line(database))
		}
	case one.Credentials == nil:
		one.Credentials = doc // the third form
	}
	if one.User != "" && one.User != name || one.Database != "" && one.Database != database {
		return nil, fmt.Errorf("it is the verifier of %s of database %s, want %s of %s", printable.Line(one.User), printable.Line(one.Database), printable.Line(name), printable.Line(database))
	}
	return verifierOf(one.Credentials)
}

func verifierOf(credentials bson.Raw) (Verifier, error) {
	v := Verifier{}
	for _, m := range mechanisms {
		value, err := credentials.LookupErr(m.name)
		if err != nil {
			continue
		}
		var c credential
		if err := value.Unmarshal(&c); err != nil {
			return nil, fmt.Errorf("%s: want iterationCount, salt, storedKey and serverKey", m.name)
		}
		if v[m.name], err = c.stored(m); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if len(v) == 0 {
		return nil, fmt.Errorf("it has neither %s nor %s", SHA256, SHA1)
	}
	return v, nil
}

func (c credential) stored(m mechanism) (out scram.StoredCredentials, err error) {
	if c.Iterations < fewestIterations || c.Iterations > mostIterations {
		return out, fmt.Errorf("iterationCount is %d, want %d to %d", c.Iterations, fewestIterations, mostIterations)
	}
	bytes := func(key, text string, least, most int) []byte {
		b, bad := base64.StdEncoding.DecodeString(text)
		if err == nil && (bad != nil || len(b) < least || len(b) > most) {
			err = fmt.Errorf("%s: want %d to %d bytes in base64", key, least, most)
		}
		return b
	}
	out.Iters = c.Iterations
	out.Salt = string(bytes("salt", c.Salt, shortestSalt, longestSalt))
	out.StoredKey = bytes("storedKey", c.StoredKey, m.size, m.size)
	out.ServerKey = bytes("serverKey", c.ServerKey, m.size, m.size)
	return out, err
}

// New returns the text of a file for a user with this password. With old it has SCRAM-SHA-1, too.
func New(database, name, password string, old bool) ([]byte, error) {
	if password == "" {
		return nil, errors.New("the password is empty")
	}
	out := map[string]credential{}
	for _, m := range mechanisms {
		var text string
		switch {
		case m.name == SHA1 && !old:
			continue
		case m.name == SHA1:
			text = digest(name, password)
		default:
			var err error
			// The error would quote a character of it.
			if text, err = stringprep.SASLprep.Prepare(password); err != nil {
				return nil, errors.New("the password has a character that " + SHA256 + " does not allow")
			}
		}
		salt := make([]byte, m.salt)
		if _, err := rand.Read(salt); err != nil {
			return nil, err
		}
		client, err := m.hash.NewClientUnprepped(name, text, "")
		if err != nil {
			return nil, err
		}
		keys, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: string(salt), Iters: m.iterations})
		if err != nil {
			return nil, err
		}
		encode := base64.StdEncoding.EncodeToString
		out[m.name] = credential{m.iterations, encode(salt), encode(keys.StoredKey), encode(keys.ServerKey)}
	}
	text, err := json.MarshalIndent(map[string]any{"user": name, "db": database, "credentials": out}, "", "  ")
	return append(text, '\n'), err
}

// digest is what MongoDB takes for the password in SCRAM-SHA-1.
func digest(name, password string) string {
	sum := md5.Sum([]byte(name + ":mongo:" + password)) // #nosec G401 -- see the import
	return hex.EncodeToString(sum[:])
}
