// Package cli is the command line of limpet: one file per noun.
//
// The law of this room: stdout carries data and nothing else; progress,
// warnings, prompts and errors go to stderr. Every error says what went wrong,
// why, and one command to run next. Input is judged whole before anything is
// written. Exit codes are listed in exit.go and never change their meaning.
package cli
