package login

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/xdg-go/scram"
)

const (
	// longestPayload bounds a message of a conversation. A real one has a name, a nonce and a proof.
	longestPayload = 4096
	// longestConversation is the time in which a client must finish.
	longestConversation = 30 * time.Second
)

// MechanismError refuses a mechanism. Its text is that of MongoDB.
type MechanismError struct {
	Mechanism string
	known     bool // by the proxy; the user has no verifier for it
}

func (e *MechanismError) Error() string {
	if e.known {
		return "Unable to use " + e.Mechanism + " based authentication for user without any " + e.Mechanism + " credentials registered"
	}
	return "Received authentication for mechanism " + e.Mechanism + " which is not enabled"
}

// Refuse returns the error for a mechanism that is not served.
func Refuse(mechanism string) error {
	if len(mechanism) > 64 { // it is echoed
		mechanism = mechanism[:64]
	}
	return &MechanismError{Mechanism: mechanism}
}

// Conversation is one login of a client. It is not safe for concurrent use.
type Conversation struct {
	Name, Database, Mechanism string // as the client says

	user  *User // nil: unknown
	scram *scram.ServerConversation
	short bool // the proof is the last message; otherwise an empty one comes after it
	began time.Time
	step  int // messages of the client that came
}

// Start begins a conversation by the first message of a client, and returns the answer. Errors do not quote the
// message.
func (us *Users) Start(database, mechanismName string, payload []byte, short bool) (*Conversation, []byte, error) {
	i := slices.IndexFunc(mechanisms, func(m mechanism) bool { return m.name == mechanismName })
	if i < 0 {
		return nil, nil, Refuse(mechanismName)
	}
	if len(payload) > longestPayload {
		return nil, nil, errors.New("a message is too long")
	}
	c := &Conversation{Database: database, Mechanism: mechanismName, short: short, began: time.Now(), step: 1}
	var lacks error
	server, err := mechanisms[i].hash.NewServer(func(raw string) (out scram.StoredCredentials, err error) {
		if c.Name, err = unescape(raw); err != nil {
			return out, err
		}
		var v Verifier
		c.user, v = us.find(database, c.Name)
		out, ok := v[mechanismName]
		if !ok {
			lacks = &MechanismError{mechanismName, true}
			return out, lacks
		}
		return out, nil
	})
	if err != nil {
		return nil, nil, err
	}
	c.scram = server.NewConversation()
	answer, err := c.scram.Step(string(payload))
	switch {
	case lacks != nil:
		return nil, nil, lacks
	case err != nil:
		return nil, nil, errMessage
	}
	// A client that wants to act as another user.
	if as := c.scram.AuthzID(); as != "" {
		if other, err := unescape(as); err != nil || other != c.Name {
			return nil, nil, errors.New("it asks to act as another user")
		}
	}
	return c, []byte(answer), nil
}

// errMessage hides the library's errors, which quote the message.
var errMessage = errors.New("a message is no valid one of SCRAM")

// Guesses reports whether the next message is the proof that the client knows the password.
func (c *Conversation) Guesses() bool { return c.step == 1 }

// Next takes the next message of the client, and returns the answer. The user has logged in when done is true.
// After an error the conversation is over.
func (c *Conversation) Next(payload []byte) (answer []byte, done bool, err error) {
	c.step++
	switch {
	case len(payload) > longestPayload:
		return nil, false, errors.New("a message is too long")
	case time.Since(c.began) > longestConversation:
		return nil, false, fmt.Errorf("it took longer than %s", longestConversation)
	case c.step == 2:
		answer, err := c.scram.Step(string(payload))
		if err != nil || !c.scram.Valid() || c.user == nil {
			return nil, false, errors.New("wrong password, or an unknown user")
		}
		return []byte(answer), c.short, nil
	case c.step == 3 && !c.short && len(payload) == 0:
		return nil, true, nil
	}
	return nil, false, errMessage
}

// User returns the user after done. It returns nil if an operator has removed the user meanwhile.
func (c *Conversation) User() *User {
	if c.user == nil || !c.scram.Valid() || !c.user.Active() {
		return nil
	}
	return c.user
}

// unescape returns a name of a message. It has =2C for a comma and =3D for an equals sign.
func unescape(raw string) (string, error) {
	parts := strings.Split(raw, "=")
	var b strings.Builder
	b.WriteString(parts[0])
	for _, part := range parts[1:] {
		switch {
		case strings.HasPrefix(part, "2C"):
			b.WriteByte(',')
		case strings.HasPrefix(part, "3D"):
			b.WriteByte('=')
		default:
			return "", errMessage
		}
		b.WriteString(part[2:])
	}
	if b.Len() == 0 {
		return "", errMessage
	}
	return b.String(), nil
}
