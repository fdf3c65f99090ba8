package access

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/refusal"
)

// Audit tells of each call that changes something, of each that was refused, and of who
// made it: in a log of its own, before the caller has the answer.
type Audit struct {
	log *zap.Logger
}

// AuditLog is the name of the logger that the audit writes to. A process must write its
// lines at every level of its log.
const AuditLog = "audit"

// NewAudit writes to a logger, under the name AuditLog.
func NewAudit(log *zap.Logger) *Audit { return &Audit{log: log.Named(AuditLog)} }

// asking is what requests have that change something.
type asking interface {
	GetName() string
	GetRequestedBy() string
	GetDryRun() bool
}

type renewalKey struct{}

// Renewed says that a call has renewed what its caller had already. The audit leaves such calls out,
// which each application makes every few seconds. Calls that fail stay in it.
func Renewed(ctx context.Context) {
	if r, ok := ctx.Value(renewalKey{}).(*bool); ok {
		*r = true
	}
}

// panicked tells of a call whose handler has panicked, so that nobody knows what it has done.
func (a *Audit) panicked(r *http.Request, c Caller) {
	if a == nil {
		return
	}
	a.log.Error("panicked", append(a.fields(c, clip(callName(r.URL.Path))), zap.String("answer", "none"))...)
}

func (a *Audit) answered(c Caller, procedure string, req any, renewed bool, err error) {
	if a == nil || renewed && err == nil {
		return
	}
	fields := a.fields(c, callName(procedure))
	if r, ok := req.(interface{ GetName() string }); ok && r.GetName() != "" {
		fields = append(fields, zap.String("deployment", clip(r.GetName())))
	}
	if r, ok := req.(asking); ok {
		fields = append(fields, zap.String("by", clip(r.GetRequestedBy())), zap.Bool("dry_run", r.GetDryRun()))
	}
	if r, ok := req.(interface{ GetApplication() string }); ok {
		fields = append(fields, zap.String("application", clip(r.GetApplication())))
	}
	if r, ok := req.(interface{ GetClientId() string }); ok && r.GetClientId() != "" {
		fields = append(fields, zap.String("client", clip(r.GetClientId())))
	}
	a.log.Info("call", append(fields, answer(err)...)...)
}

func (a *Audit) refused(r *http.Request, c Caller, err error) {
	if a == nil {
		return
	}
	a.log.Warn("refused", append(a.fields(c, clip(callName(r.URL.Path))), answer(err)...)...)
}

func (a *Audit) fields(c Caller, call string) []zap.Field {
	roles := make([]string, len(c.Roles))
	for i, r := range c.Roles {
		roles[i] = string(r)
	}
	return []zap.Field{zap.String("identity", c.Name), zap.String("proof", c.Proof), zap.Strings("roles", roles),
		zap.String("from", c.Address), zap.String("call", call)}
}

// answer is what the caller gets to know.
func answer(err error) []zap.Field {
	if err == nil {
		return []zap.Field{zap.String("answer", "ok")}
	}
	fields := []zap.Field{zap.String("answer", connect.CodeOf(err).String()), zap.String("message", err.Error())}
	if reason, _ := refusal.Of(err); reason != "" {
		fields = append(fields, zap.String("reason", string(reason)))
	}
	return fields
}
