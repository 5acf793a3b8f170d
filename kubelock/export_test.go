package kubelock

const MaxValue = maxValue
