// Package webhook receives the webhooks of Git hosts: a push becomes a pull job at once instead of
// at the next interval. It understands GitHub, GitLab, Bitbucket, Gitea and Forgejo, at the path
// and with the answers of Grafana's own endpoint.
//
// What it promises:
//
//   - A webhook may only cause a pull: it queues a job of the Repository in
//     its path and nothing else. Neither a branch, a commit nor a URL of the
//     payload decides what is pulled: the pull asks Git itself. A job for a pull
//     request contains the data of its host.
//   - Nothing of a payload is parsed before its signature is right. A wrong
//     signature, a missing one and a Repository that is not there have one answer.
//   - A delivery is remembered after its job is queued, not before. A power cut in
//     between costs a second pull, never a lost one. A delivery whose job could
//     not be queued is answered with 503 and may come again.
//   - What strangers can make it hold is bounded: connections, headers, bodies,
//     clients, time, lines of the log. None of it reaches the state file.
//
// Host, table and Repository are evaluated by pure functions (Parse, Decide);
// the Receiver is the HTTP side; Store is the agent behind it.
package webhook
